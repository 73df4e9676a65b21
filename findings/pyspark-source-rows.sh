#!/usr/bin/env bash
# Rows of a Python data source are changed or left out without an error.
#
# Expected: each of four columns fails the read: a float for INT, bytes for STRING, a decimal of three digits behind the
# point for DECIMAL(10, 2), and an iterator whose function raises StopIteration, which fails an RDD's map
# (STOP_ITERATION_OCCURRED).
# PySpark 4.3.0, seen on 2026-11-29, and PySpark 4.2.1: 1.9 is read as 1, b"N14228" as the text "b'N14228'", 2.345 as
# 2.34. A StopIteration that escapes from a function of map() ends the partition: the rows behind it are missing, and the
# query succeeds. (A generator is not affected: Python turns its StopIteration into a RuntimeError.)
# Hurt: authors of Python data sources and their readers. next() of an empty iterator, in a parser of rows, is enough.
# Needs Java 17 or newer; installs some 500 MB.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==22.0.0 'pandas==2.3.3'
cd "$work"
env -u SPARK_HOME PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" - 2>/dev/null <<'PY'
from decimal import Decimal

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader


def parse(line):
    """A parser of lines, which ends at a line that is empty: next() of an empty iterator raises StopIteration."""
    return (next(iter(line.split())),)


ROWS = {
    "i INT": lambda: iter([(1.9,)]),
    "s STRING": lambda: iter([(b"N14228",)]),
    "d DECIMAL(10, 2)": lambda: iter([(Decimal("2.345"),)]),
    "line STRING": lambda: map(parse, ["one", "two", "", "four", "five"]),
}


class Reader(DataSourceReader):
    def __init__(self, column):
        self.column = column

    def read(self, partition):
        return ROWS[self.column]()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "rows"

    def schema(self):
        return self.options["column"]

    def reader(self, schema):
        return Reader(self.options["column"])


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
spark.dataSource.register(Source)
seen = {}
for column in ROWS:
    rows = spark.read.format("rows").option("column", column).load().collect()
    seen[column] = [row[0] for row in rows]
    print(f"PySpark {pyspark.__version__}: {column} {seen[column]}")
assert seen == {
    "i INT": [1],
    "s STRING": ["b'N14228'"],
    "d DECIMAL(10, 2)": [Decimal("2.34")],
    "line STRING": ["one", "two"],
}
PY
