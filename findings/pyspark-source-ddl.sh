#!/usr/bin/env bash
# A session's setting changes the type of a Python data source's column, if its schema is a DDL string.
#
# PySpark 4.3.0, seen on 2026-11-29: DataSource.schema() may return a DDL string. Spark parses the string with the
# settings of the reading session: under spark.sql.timestampType=TIMESTAMP_NTZ, "at TIMESTAMP" is a timestamp without a
# time zone, and a reader that yields an instant (an aware datetime), which works by default, fails each read. A
# StructType is taken as it is.
# Hurt: authors of Python data sources, and whoever reads them in a session with that setting.
# Needs Java 17 or newer; installs some 500 MB.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==22.0.0 'pandas==2.3.3'
cd "$work"
env -u SPARK_HOME PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" - 2>/dev/null <<'PY'
import datetime

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructField, StructType, TimestampType


class Reader(DataSourceReader):
    def read(self, partition):
        yield (datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.timezone.utc),)


def source(schema):
    class Source(DataSource):
        @classmethod
        def name(cls):
            return "instants"

        def schema(self):
            return schema

        def reader(self, schema):
            return Reader()

    return Source


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
seen = {}
for form, schema in {
    "DDL": "at TIMESTAMP",
    "StructType": StructType([StructField("at", TimestampType())]),
}.items():
    spark.dataSource.register(source(schema))
    for setting in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        spark.conf.set("spark.sql.timestampType", setting)
        rows = spark.read.format("instants").load()
        try:
            count = len(rows.collect())
        except PySparkException as error:
            count = type(error).__name__
        seen[form, setting] = rows.schema.simpleString(), count
        print(f"{form:11} {setting:14} {seen[form, setting]}")
assert seen == {
    ("DDL", "TIMESTAMP_LTZ"): ("struct<at:timestamp>", 1),
    ("DDL", "TIMESTAMP_NTZ"): ("struct<at:timestamp_ntz>", "PythonException"),
    ("StructType", "TIMESTAMP_LTZ"): ("struct<at:timestamp>", 1),
    ("StructType", "TIMESTAMP_NTZ"): ("struct<at:timestamp>", 1),
}
PY
