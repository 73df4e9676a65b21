"""What `sparkinesis.functions` cost in Spark, beside a plain Python UDF that does the same.

Each reads a Parquet file of records and writes the result to ``noop``, on two cores. CPU seconds
are those of the JVM and of all its Python processes.
"""

from __future__ import annotations

import gzip
import json
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import functions as sf

from benchmarks.cpu_seconds import child_running, cpu_of_spark
from benchmarks.report import Result
from benchmarks.source import spark_session
from sparkinesis import functions, payloads

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

ROWS = 50_000
DISTINCT = 1_000
ROUNDS = 5

_IMAGE = "plane STRING, delay INT, price DECIMAL(10, 2), tags ARRAY<STRING>"
_ROW = "plane STRING, delay INT"


def log(n: int) -> bytes:
    events = [{"id": str(i), "timestamp": n, "message": f"taxi {i * n}"} for i in range(10)]
    logs = {"messageType": "DATA_MESSAGE", "logGroup": "tower", "logEvents": events}
    return gzip.compress(json.dumps(logs).encode())


def glue(n: int) -> bytes:
    flight = {"plane": f"N{n}", "delay": n, "log": [f"taxi {i * n}" for i in range(10)]}
    return b"\x03\x05" + n.to_bytes(16, "big") + zlib.compress(json.dumps(flight).encode())


def spring(n: int) -> bytes:
    headers = json.dumps({"contentType": "application/json", "gate": f"A{n}"}).encode()
    payload = json.dumps({"plane": f"N{n}", "delay": n}).encode()
    return b"".join(len(part).to_bytes(4, "big") + part for part in (headers, payload))


def dynamodb(n: int) -> bytes:
    image = {
        "plane": {"S": f"N{n}"},
        "delay": {"N": str(n)},
        "price": {"N": f"{n}.25"},
        "tags": {"SS": ["late", "far"]},
    }
    images = {"Keys": {"plane": {"S": f"N{n}"}}, "NewImage": image, "OldImage": image}
    change = {"eventID": str(n), "eventName": "MODIFY", "tableName": "flights", "dynamodb": images}
    return json.dumps(change).encode()


def decimal(n: int) -> bytes:
    return (n * 10**7 - 10**9).to_bytes(5, "big", signed=True)


def wide_decimal(n: int) -> bytes:
    return (n * 10**12 - 10**14).to_bytes(9, "big", signed=True)


def debezium(n: int) -> bytes:
    row = {"plane": f"N{n}", "delay": n}
    return json.dumps({"op": "u", "ts_ms": n, "before": row, "after": row}).encode()


def plain_change(data: bytes) -> Any:
    change = payloads.dynamodb_record(bytes(data))
    if change is None:
        return None
    image = {**change["NewImage"], "tags": list(change["NewImage"]["tags"])}
    return change["eventName"], change["Keys"], image


def plain_decimal(data: bytes) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-2)


def _change() -> Column:
    change = functions.dynamodb_record("data", _IMAGE)
    return sf.struct(change["eventName"], change["Keys"], change["NewImage"])


def _debezium() -> Column:
    schema = f"op STRING, before STRUCT<{_ROW}>, after STRUCT<{_ROW}>"
    return sf.from_json(sf.col("data").cast("string"), schema)


Case = tuple[Callable[[int], bytes], Callable[[], "Column"], Callable[[bytes], Any], str]
CASES: dict[str, Case] = {
    "gunzip, 10 log events": (
        log,
        lambda: functions.gunzip("data"),
        lambda data: payloads.gunzip(bytes(data)),
        "BINARY",
    ),
    "glue_record, compressed": (
        glue,
        lambda: functions.glue_record("data"),
        lambda data: payloads.glue_record(bytes(data)),
        "schemaId STRING, payload BINARY",
    ),
    "spring_record, 2 headers": (
        spring,
        lambda: functions.spring_record("data"),
        lambda data: payloads.spring_record(bytes(data)),
        "headers MAP<STRING, STRING>, payload BINARY",
    ),
    "dynamodb_record, 4 attributes": (
        dynamodb,
        _change,
        plain_change,
        f"name STRING, keys STRUCT<{_IMAGE}>, image STRUCT<{_IMAGE}>",
    ),
    "connect_decimal, 5 bytes": (
        decimal,
        lambda: functions.connect_decimal("data", 2),
        plain_decimal,
        "DECIMAL(38, 2)",
    ),
    "connect_decimal, 9 bytes": (
        wide_decimal,
        lambda: functions.connect_decimal("data", 2),
        plain_decimal,
        "DECIMAL(38, 2)",
    ),
    "from_json, a change of Debezium": (
        debezium,
        _debezium,
        json.loads,
        f"op STRING, before STRUCT<{_ROW}>, after STRUCT<{_ROW}>",
    ),
}


def measure(spark: SparkSession, jvm: int, folder: str, name: str) -> Result:
    record, column, plain, type_ = CASES[name]
    distinct = [record(n) for n in range(DISTINCT)]
    path = f"{folder}/{record.__name__}.parquet"
    table = pa.table({"data": pa.array(distinct * (ROWS // DISTINCT), pa.binary())})
    pa.parquet.write_table(table, path, row_group_size=ROWS // 4)
    records = spark.read.parquet(path)
    sides = [column(), sf.udf(plain, type_)("data")]
    cpu: list[list[float]] = [[], []]
    seconds: list[list[float]] = [[], []]
    for number in range(ROUNDS + 1):
        for side, each in enumerate(sides):
            start, before = time.perf_counter(), sum(cpu_of_spark(jvm).values())
            records.select(each).write.format("noop").mode("overwrite").save()
            if number:
                seconds[side].append(time.perf_counter() - start)
                cpu[side].append(sum(cpu_of_spark(jvm).values()) - before)
    ours, others = (statistics.median(each) for each in cpu)
    rate, rate_of_udf = (ROWS / statistics.median(each) for each in seconds)
    return Result(
        name,
        ours / ROWS * 1e6,
        "CPU s per million rows",
        others / ours,
        note=f"{rate:,.0f} rows/s, from {ROWS / max(seconds[0]):,.0f} to "
        f"{ROWS / min(seconds[0]):,.0f}; the UDF {rate_of_udf:,.0f}, from "
        f"{ROWS / max(seconds[1]):,.0f} to {ROWS / min(seconds[1]):,.0f}; CPU {min(cpu[0]):.2f} to "
        f"{max(cpu[0]):.2f} s, and {min(cpu[1]):.2f} to {max(cpu[1]):.2f} s",
    )


def run() -> list[Result]:
    spark = spark_session()
    try:
        with tempfile.TemporaryDirectory() as folder:
            jvm = child_running("org.apache.spark.deploy.SparkSubmit")
            return [measure(spark, jvm, folder, name) for name in CASES]
    finally:
        spark.stop()
