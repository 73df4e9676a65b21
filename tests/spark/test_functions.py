"""The functions of columns give what those of bytes give, and no data fails a query."""

from __future__ import annotations

import gzip
import zlib
from base64 import b64decode
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StructType

from sparkinesis import payloads
from sparkinesis.errors import OptionError
from sparkinesis.functions import (
    connect_decimal,
    dynamodb_record,
    glue_record,
    gunzip,
    spring_record,
)
from tests.producers import CONNECT, DECIMALS, HOSTILE, SPRING, change
from tests.spark.test_payloads import frame, plan, results
from tests.unit.test_payloads import EVERY_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = """plane STRING, delay INT, price DECIMAL(38, 2), tags ARRAY<STRING>,
seats STRUCT<row: INT, free: ARRAY<DOUBLE>>, gates MAP<STRING, BOOLEAN>, photo BINARY"""


def test_the_headers_of_spring_are_texts_or_json(spark: SparkSession) -> None:
    records = [b64decode(SPRING["flight"]), b64decode(SPRING["empty"])]
    flight, empty = results(frame(spark, [*records]), spring_record("data"))
    assert (flight.payload, empty.payload) == (b'{"plane": "N14228"}', b"")
    assert flight.headers["contentType"] == "application/json"
    assert flight.headers["gate"] == "A\u00e9"
    assert (flight.headers["delay"], flight.headers["late"]) == ("11", "true")
    assert flight.headers["flight"] == ('["java.util.UUID","b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"]')


def test_an_item_of_dynamodb_has_the_types_that_are_asked_for(spark: SparkSession) -> None:
    item = """text STRING, whole INT, exact DECIMAL(38, 0), small DOUBLE, flag BOOLEAN,
    nothing STRING, bytes BINARY, texts ARRAY<STRING>, numbers ARRAY<DECIMAL(10, 1)>,
    binaries ARRAY<BINARY>, list ARRAY<STRING>,
    map STRUCT<inner: MAP<STRING, STRUCT<deep: INT>>>, whole2 INT"""
    types = {
        **EVERY_TYPE,
        "map": {"M": {"inner": {"M": {"a": {"M": {"deep": {"N": "1"}}}, "b": {"NULL": True}}}}},
    }
    records = frame(spark, [change(NewImage=types)])
    column = dynamodb_record("data", item)
    (row,) = results(records, column)
    assert row.NewImage.asDict(recursive=True) == {
        "text": "N14228",
        "whole": -11,
        "exact": Decimal(12345678901234567890123456789012345678),
        "small": 1.5e-100,
        "flag": False,
        "nothing": None,
        "bytes": b"\x00\xff",
        "texts": ["a", "b"],
        "numbers": [Decimal("1.0"), Decimal("2.5")],
        "binaries": [b"\x00", b"\xff"],
        "list": ["a", "1", None, None],
        "map": {"inner": {"a": {"deep": 1}, "b": None}},
        "whole2": None,
    }
    assert (row.eventID, row.eventName, row.tableName) == ("f8a7-1", "MODIFY", "flights")
    assert (row.userIdentity, row.OldImage, row.Keys.text) == (None, None, None)
    assert "Python" not in plan(records.select(column))


def test_a_number_that_its_type_cannot_hold_is_null(spark: SparkSession) -> None:
    numbers = ["127", "128", "1.5", "1e400000000", "late"]
    records = [change(NewImage={"delay": {"N": number}}) for number in numbers]
    found = results(frame(spark, [*records]), dynamodb_record("data", "delay TINYINT"))
    assert [row.NewImage.delay for row in found] == [127, None, None, None, None]
    record = change(NewImage={"delays": {"NS": numbers}})
    (row,) = results(frame(spark, [record]), dynamodb_record("data", "delays ARRAY<TINYINT>"))
    assert row.NewImage.delays == [127, None, None, None, None]


def test_the_time_of_a_change_is_in_the_unit_that_its_own_field_names(
    spark: SparkSession,
) -> None:
    times: list[dict[str, Any]] = [
        {"ApproximateCreationDateTime": 1_790_000_000_123},
        {
            "ApproximateCreationDateTime": 1_790_000_000_123,
            "ApproximateCreationDateTimePrecision": "MILLISECOND",
        },
        {
            "ApproximateCreationDateTime": 1_790_000_000_123_456,
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
        },
    ]
    records = [change(**each) for each in times]
    found = results(frame(spark, [*records]), dynamodb_record("data", "plane STRING"))
    at = [row.ApproximateCreationDateTime.astimezone(timezone.utc) for row in found]
    assert at[0] == at[1] == datetime(2026, 9, 21, 14, 13, 20, 123_000, timezone.utc)
    assert at[2] == datetime(2026, 9, 21, 14, 13, 20, 123_456, timezone.utc)
    plain = [payloads.dynamodb_record(record) for record in records]
    assert [each["ApproximateCreationDateTime"] for each in plain if each] == at


def test_an_expired_item_names_the_service_that_deleted_it(spark: SparkSession) -> None:
    service = b'{"type": "Service", "principalId": "dynamodb.amazonaws.com"}'
    record = change().replace(b'"userIdentity": null', b'"userIdentity": ' + service)
    (row,) = results(frame(spark, [record]), dynamodb_record("data", "plane STRING"))
    assert row.userIdentity == ("dynamodb.amazonaws.com", "Service")
    assert (row.Keys.plane, row.NewImage) == ("N14228", None)


@pytest.mark.parametrize(
    ("item", "wrong"), [("day DATE", "day"), ("a STRUCT<b: MAP<INT, INT>>", "b")]
)
def test_a_type_that_dynamodb_has_not_is_refused_by_name(
    spark: SparkSession, item: str, wrong: str
) -> None:
    with pytest.raises(OptionError, match=rf"The attribute {wrong} has the type (date|map)"):
        dynamodb_record("data", item)


def test_an_attribute_may_have_any_name(spark: SparkSession) -> None:
    image = {"flight-no.1": {"M": {"a b`": {"N": "11"}}}}
    records = frame(spark, [change(NewImage=image)])
    inner = StructType().add("a b`", IntegerType())
    for item in ("`flight-no.1` STRUCT<`a b```: INT>", StructType().add("flight-no.1", inner)):
        (row,) = results(records, dynamodb_record("data", item))
        assert row.NewImage == ((11,),)


def test_an_item_without_attributes_is_refused(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match="INT names no attributes"):
        dynamodb_record("data", "INT")


def test_decimals_of_kafka_connect_are_exact(spark: SparkSession) -> None:
    texts = [*DECIMALS.values()]
    data = frame(spark, [None, b"", *map(b64decode, texts)])
    found = results(data, connect_decimal("data", 2))
    assert found == [None, None, *(payloads.connect_decimal(text, 2) for text in texts)]
    assert None in found[2:]
    assert data.select(connect_decimal("data", 2)).dtypes == [("connect_decimal", "decimal(38,2)")]


@pytest.mark.parametrize("scale", [0, 1, 38])
def test_each_scale_of_a_decimal_is_kept(spark: SparkSession, scale: int) -> None:
    texts = [*DECIMALS.values()]
    data = frame(spark, [*map(b64decode, texts)])
    plain = [payloads.connect_decimal(text, scale) for text in texts]
    assert results(data, connect_decimal(data.data, scale)) == plain


def test_decimals_end_where_those_of_spark_end(spark: SparkSession) -> None:
    edges = [10**38 + n for n in (-2, -1, 0, 1)] + [2**127 - 1, 2**64, 2**64 - 1, 2**63]
    numbers = [sign * edge for edge in edges for sign in (1, -1)] + [-(2**127)]
    data = [number.to_bytes(16, "big", signed=True) for number in numbers]
    found = results(frame(spark, [*data, bytes(17)]), connect_decimal("data", 0))
    assert found == [*(number if abs(number) < 10**38 else None for number in numbers), None]


def test_times_of_kafka_connect_are_those_of_the_converter_and_null_out_of_range(
    spark: SparkSession,
) -> None:
    """The expressions of the table in ``docs/payloads.md``."""
    schema = "payload STRUCT<day: INT, at: BIGINT, price: BINARY, photo: BINARY>"
    records = [CONNECT["schema"], CONNECT["schema"].replace("1790000000123", str(2**63 - 1))]
    rows = spark.createDataFrame([(record,) for record in records], "data STRING")
    value = sf.from_json("data", schema)["payload"]
    found = rows.select(
        sf.date_from_unix_date(value["day"]).alias("day"),
        sf.timestamp_micros(sf.try_multiply(value["at"], sf.lit(1000))).alias("at"),
        connect_decimal(value["price"], 2).alias("price"),
        value["photo"].alias("photo"),
    ).collect()
    assert [row.day for row in found] == [date(2026, 9, 21)] * 2
    assert found[0].at.astimezone(timezone.utc) == datetime(
        2026, 9, 21, 14, 13, 20, 123_000, timezone.utc
    )
    assert (found[1].at, found[0].price, found[0].photo) == (None, Decimal("12.34"), b"\0\xff")


ZIPPED = gzip.compress(b"payload")
DATA = [*HOSTILE, ZIPPED, ZIPPED + ZIPPED, ZIPPED[:-1], ZIPPED + b"more", zlib.compress(b"payload")]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_no_data_fails_a_query_or_loses_a_row(spark: SparkSession, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        records = frame(spark, [*DATA, change(NewImage={"plane": {"S": "N14228"}})])
        rows = records.select(
            "data",
            gunzip("data").alias("gunzip"),
            glue_record("data").alias("glue"),
            spring_record("data").alias("spring"),
            dynamodb_record("data", ITEM).alias("change"),
            connect_decimal("data", 2).alias("decimal"),
        ).collect()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [bytes(row.data) for row in rows][:-1] == DATA
    assert rows[-1].change.NewImage.plane == "N14228"
    for row in rows:
        data = bytes(row.data)
        assert row.gunzip == payloads.gunzip(data)
        assert row.glue == payloads.glue_record(data)
        spring = payloads.spring_record(data)
        assert (row.spring and (row.spring.headers, row.spring.payload)) == spring
        assert row.change is None or b'"Keys": {' in data


def test_payloads_that_exceed_an_arrow_array_are_in_several(spark: SparkSession) -> None:
    zipped = [gzip.compress(bytes([n]) * 30_000_000) for n in range(8)]
    rows = spark.createDataFrame(
        [(n, bytearray(each)) for n, each in enumerate(zipped)], "n INT, data BINARY"
    ).coalesce(1)
    lengths = rows.selectExpr("n", "data").select("n", gunzip("data").alias("data"))
    found = lengths.selectExpr("n", "length(data)", "hex(substring(data, -1, 1))").collect()
    assert [tuple(row) for row in found] == [(n, 30_000_000, f"{n:02X}") for n in range(8)]
