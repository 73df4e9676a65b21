"""The programs of ``docs/payloads.md`` run as they stand, against a local Kinesis.

Those of Avro need a package of Spark: they are in ``test_payload_processes.py``. Those of record
processors and queues are run by ``tests/integration/testing/test_payloads.py``.
"""

# ruff: noqa: F811 - fixtures

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2

from sparkinesis.functions import glue_record
from sparkinesis.local import LocalServer
from tests.documents import ROOT, tables
from tests.producers import PROGRAMS, SERVICES, SHOWN
from tests.spark.glue import FIXTURE, add_schema, glue_registry, header
from tests.spark.printed import Run, kinesis, run, server  # noqa: F401 - fixtures
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PAGE = ROOT / "docs" / "payloads.md"
_, JSON, CSV, AVRO, PROTOBUF, GLUE, GLUE_AVRO = PROGRAMS[: -2 * len(SERVICES)]
CSV_SHOWN, AVRO_SHOWN, PROTOBUF_SHOWN, GLUE_SHOWN = SHOWN[: -len(SERVICES)]


def put_in_order(kinesis: Any, records: list[bytes]) -> None:
    put(kinesis, "flights", records, key="any")


def test_json(run: Run, kinesis: Any, spark: SparkSession, tmp_path: Path) -> None:
    (table,) = (each for each in tables(PAGE) if "`isBad`" in each.head)
    rows = [(data.strip("`"), *values) for data, *values, _ in table.rows]
    put_in_order(kinesis, [data.encode() for data, *_ in rows])
    run(JSON.text)
    stored = spark.read.parquet(str(tmp_path / "flights")).collect()
    assert sorted(
        (row.data.decode(), row.plane or "", str(row.delay or ""), str(row.isBad).lower())
        for row in stored
    ) == sorted(rows)
    assert {path.name for path in (tmp_path / "flights").glob("isBad=*")} == {
        "isBad=false",
        "isBad=true",
    }


def test_lines_of_csv(run: Run, kinesis: Any, capsys: pytest.CaptureFixture[str]) -> None:
    put_in_order(kinesis, [b"N14228,11\nN24211,late\r\nN619AA\n", b"N804JB,-3"])
    run(CSV.text)
    assert capsys.readouterr().out.strip() == CSV_SHOWN.strip()


@pytest.mark.parametrize("name", SERVICES)
def test_what_services_write(
    run: Run, kinesis: Any, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    service = SERVICES[name]
    put_in_order(kinesis, service.records + service.damaged)
    run(service.program.text)
    assert capsys.readouterr().out.strip() == service.shown.strip()


def flights_proto() -> bytes:
    """What protoc writes of a file with the message ``flights.Flight``."""
    field = descriptor_pb2.FieldDescriptorProto
    flight = descriptor_pb2.DescriptorProto(
        name="Flight",
        field=[
            field(name="plane", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL),
            field(name="delay", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL),
        ],
    )
    file = descriptor_pb2.FileDescriptorProto(
        name="flights.proto", package="flights", syntax="proto3", message_type=[flight]
    )
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_protobuf(
    run: Run, kinesis: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flights.desc").write_bytes(flights_proto())
    put_in_order(kinesis, [b"\x0a\x06N14228\x10\x0b", b"late"])
    run(PROTOBUF.text)
    assert capsys.readouterr().out.strip() == PROTOBUF_SHOWN.strip()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of Glue, which programs use, too."""
    with glue_registry() as (client, endpoint):
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", endpoint)
        yield client


def put_glue_records(kinesis: Any, registry: Any) -> None:
    schema_id = add_schema(
        registry, "JSON", '{"$schema": "http://json-schema.org/draft-07/schema#"}'
    )
    flight = b'{"plane": "N14228", "delay": 11}'
    deflated = header(schema_id, flight, compresses=True)
    put_in_order(kinesis, [header(schema_id, flight), deflated, deflated[:-9], flight])


def test_records_of_the_glue_schema_registry(
    run: Run, kinesis: Any, registry: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    put_glue_records(kinesis, registry)
    run(GLUE.text)
    assert capsys.readouterr().out.strip() == GLUE_SHOWN.strip()


ID = FIXTURE["schemaId"]
HEADER = header(ID, b"")
DEFLATED = header(ID, b"payload", compresses=True)
GLUE_RECORDS = {
    HEADER + b"payload": (ID, b"payload"),
    DEFLATED: (ID, b"payload"),
    DEFLATED + b"more": (ID, b"payload"),
    HEADER: (ID, b""),
    DEFLATED[:-1]: (ID, None),
    b"\x03\x05" + UUID(ID).bytes: (ID, None),
    b"\x03\x05" + UUID(ID).bytes + b"payload": (ID, None),
    HEADER[:-1]: None,
    b"\x02" + HEADER[1:] + b"payload": None,
    b"\x03\x04" + HEADER[2:] + b"payload": None,
    b'{"plane": "N14228", "delay": 11}': None,
    b"": None,
    None: None,
}
"""Records, and the fields of `glue_record`."""
for peer in ("java", "python"):
    for compression in ("NONE", "ZLIB"):
        record = b64decode(FIXTURE[peer][compression])
        GLUE_RECORDS[record] = (ID, b64decode(FIXTURE["avro"]))


def frame(spark: SparkSession, records: list[bytes | None]) -> DataFrame:
    rows = [(None if record is None else bytearray(record),) for record in records]
    return spark.createDataFrame(rows, "data BINARY")


def results(data: DataFrame, column: Column) -> list[Any]:
    return [row[0] for row in data.select(column).collect()]


def test_a_text_counts_as_its_bytes(spark: SparkSession) -> None:
    texts = spark.createDataFrame([("\x03\0" + "5" * 15 + "\u00e9 late",)], "data STRING")
    assert results(texts, glue_record("data")) == [
        ("35353535-3535-3535-3535-3535353535c3", b"\xa9 late")
    ]


@pytest.mark.parametrize("large", ["false", "true"])
def test_each_record_of_glue_has_its_parts_and_others_are_null(
    spark: SparkSession, large: str
) -> None:
    """Whichever types Arrow has for its values."""
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, large)
    try:
        records = frame(spark, [*GLUE_RECORDS])
        assert results(records, glue_record(records.data)) == [*GLUE_RECORDS.values()]
    finally:
        spark.conf.unset(setting)


def test_a_filter_by_schema_runs_before_python_and_schemas_need_no_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "records")
    frame(spark, [DEFLATED, HEADER]).write.parquet(path)
    parts = spark.read.parquet(path).withColumn("record", glue_record("data"))
    assert "Python" not in plan(parts.select("record.schemaId"))
    filtered = plan(parts.where(f"record.schemaId = '{ID}'").select("record.payload"))
    assert filtered.index("ArrowEvalPython") < filtered.index("Filter"), "the last step is first"


def plan(data: DataFrame) -> str:
    executed = data._jdf.queryExecution().executedPlan()
    return str(executed.toString())


def test_a_streaming_query_has_the_parts(
    run: Run, kinesis: Any, server: LocalServer, spark: SparkSession, tmp_path: Path
) -> None:
    put_in_order(kinesis, [HEADER + b"first", header(ID, b"second", compresses=True), b"third"])
    query = (
        spark.readStream.format("kinesis")
        .options(streamName="flights", region="eu-west-1", initialPosition="trim_horizon")
        .option("endpoint", server.endpoint_url)
        .load()
        .select(glue_record("data").alias("record"))
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "parts"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    parts = [row.record for row in spark.read.parquet(str(tmp_path / "parts")).collect()]
    assert sorted(parts, key=str) == [None, (ID, b"first"), (ID, b"second")]
