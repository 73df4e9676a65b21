#!/usr/bin/env bash
# Readers of partitioned Parquet files take texts for numbers and dates: "inf" is a date, and "0x1F" is 31.
#
# Expected: of directories key=..., DuckDB makes dates, timestamps and integers as its documentation says, and pyarrow integers;
# so "inf" and "0x1F" stay texts, as "1e3" and "007" do in DuckDB, and two directories are two values.
# Seen on 2026-11-29: DuckDB 2.0.1 reads key=inf as the date of infinity, which Python gets as 9999-12-31. DuckDB and
# pyarrow 22.0.0 read key=0x1F as 31, and so as equal to key=31. Polars 2.1.0 fails on a hash key of 39 digits
# ("invalid primitive value found during CSV parsing"), of which pyarrow and DuckDB make a text. fastparquet 2026.9.0 leaves the
# escapes of pyarrow's writer in: "a b" is read as "a%20b".
# Hurt: whoever writes rows by partition key, and reads them by another library. A type that is named avoids all but the last:
# hive_types in DuckDB, hive_schema in Polars, partitioning in pyarrow.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
  duckdb==2.0.1 polars==2.1.0 pyarrow==22.0.0 fastparquet==2026.9.0 'pandas==2.3.3' pytz==2025.2
cd "$work"
"$work/venv/bin/python" - <<'PY'
import datetime

import duckdb
import fastparquet
import polars
import pyarrow as pa
import pyarrow.dataset as ds


def written(*keys):
    """The folder of rows with these keys, as pyarrow writes it."""
    name = "-".join(["lake", *keys])
    key = ds.partitioning(pa.schema([("key", pa.string())]), flavor="hive")
    rows = pa.table({"key": list(keys), "v": range(len(keys))})
    ds.write_dataset(rows, name, format="parquet", partitioning=key, existing_data_behavior="delete_matching")
    return name


def by_duckdb(name):
    rows = duckdb.sql(f"SELECT key FROM read_parquet('{name}/*/*', hive_partitioning=true) ORDER BY v")
    return [key for (key,) in rows.fetchall()]


def by_polars(name):
    try:
        return polars.read_parquet(name).sort("v")["key"].to_list()
    except polars.exceptions.ComputeError as error:
        return str(error).split("\n")[0]


def by_pyarrow(name):
    return ds.dataset(name, partitioning="hive").to_table().sort_by("v")["key"].to_pylist()


def by_fastparquet(name):
    return list(fastparquet.ParquetFile(name).to_pandas()["key"])


HASH_KEY = str(2**128 - 1)
refusal = "invalid primitive value found during CSV parsing"
for keys, read, expected in (
    (["inf"], by_duckdb, [datetime.date(9999, 12, 31)]),
    (["inf"], by_pyarrow, ["inf"]),
    (["0x1F", "31"], by_duckdb, [31, 31]),
    (["0x1F", "31"], by_pyarrow, [31, 31]),
    (["0x1F", "31"], by_polars, ["0x1F", "31"]),
    ([HASH_KEY], by_duckdb, [HASH_KEY]),
    ([HASH_KEY], by_pyarrow, [HASH_KEY]),
    ([HASH_KEY], by_polars, refusal),
    (["a b"], by_duckdb, ["a b"]),
    (["a b"], by_fastparquet, ["a%20b"]),
):
    name = written(*keys)
    seen = read(name)
    print(f"{read.__name__}: {keys} is read as {seen}")
    assert seen == expected
PY
