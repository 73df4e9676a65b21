#!/usr/bin/env bash
# DuckDB reads a decimal of 39 digits from Parquet as a floating-point number, so that hash keys that differ are equal.
#
# Expected: an error, as Polars 2.1.0 raises one, or HUGEINT, which has 39 digits.
# DuckDB 2.0.1, seen on 2026-11-29: the type of the column is DOUBLE, without a warning. The ranges of Kinesis' shards and
# explicit hash keys are numbers below 2**128, of up to 39 digits: neighbours become one number, a join by them doubles
# rows, and a shard's last key equals the next one's first. pyarrow reads what was written. Up to 38 digits are exact.
# Hurt: whoever stores such keys as decimal(39, 0), which is the smallest decimal that holds them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==22.0.0
cd "$work"
"$work/venv/bin/python" - <<'PY'
from decimal import Decimal

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

half = 2**127  # the end of the first of two shards is half - 1, the second one begins at half
keys = pa.array([Decimal(half - 1), Decimal(half)], pa.decimal256(39, 0))
pq.write_table(pa.table({"key": keys}), "keys.parquet")
assert pq.read_table("keys.parquet")["key"].to_pylist() == [half - 1, half]

(column,) = duckdb.sql("DESCRIBE SELECT * FROM 'keys.parquet'").fetchall()
different = duckdb.sql("SELECT count(DISTINCT key) FROM 'keys.parquet'").fetchall()[0][0]
print(f"DuckDB: the column is {column[1]}, and the two keys are {different} value(s)")
assert (column[1], different) == ("DOUBLE", 1)
joined = duckdb.sql("SELECT count(*) FROM 'keys.parquet' a JOIN 'keys.parquet' b USING (key)").fetchall()[0][0]
print("DuckDB: a join of the two keys with themselves has", joined, "rows")
assert joined == 4
try:
    polars.read_parquet("keys.parquet")
except polars.exceptions.InvalidOperationError as error:
    print("Polars:", error)
else:
    raise AssertionError("Polars reads it")
PY
