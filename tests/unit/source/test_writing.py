"""What may be written: mistakes are named before anything is put."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from sparkinesis.errors import OptionError, RecordRefusedError
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.source.options.checked_options import WriteOptions, write_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.row_columns import SCHEMA
from sparkinesis.source.writing import FILLED, check_schema, user_records
from tests.sink import SPARK_SCHEMA, Row, arrow

LARGEST = str(2**128 - 1)


def schema(**columns: str) -> StructType:
    fields = [
        {"name": name.rstrip("_"), "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


@pytest.mark.parametrize(
    "columns",
    [
        {"data": "binary"},
        {"data": "string", "partitionKey": "string"},
        {"DATA": "binary", "partitionkey": "string", "explicithashkey": "string"},
    ],
)
def test_schemas_that_can_be_written(columns: dict[str, str]) -> None:
    check_schema(schema(**columns), ordered=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"partitionKey": "string"}, "the column data is missing"),
        ({"data": "integer"}, "the column data is INT, not BINARY or STRING"),
        ({"data": "binary", "partitionKey": "long"}, "partitionKey is BIGINT, not STRING"),
        ({"data": "binary", "explicitHashKey": "binary"}, "explicitHashKey is BINARY, not STRING"),
        ({"data": "binary", "shardId": "string"}, "the column shardId is unknown"),
        ({"data": "binary", "DATA": "binary"}, "the column DATA appears more than once"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_schema(schema(**columns), ordered=False)
    assert said in str(caught.value)
    assert "A write takes the column data (BINARY or STRING)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_columns_that_kinesis_fills_may_be_there_without_values() -> None:
    """As in an INSERT into a table that names the others."""
    of_table = {field.name: field.dataType.typeName() for field in SCHEMA}
    check_schema(schema(**of_table), ordered=True)
    of_table.pop("stream")
    with pytest.raises(OptionError, match="the column shardId is unknown"):
        check_schema(schema(**of_table), ordered=False)

    for filled in FILLED:
        for value in (None, "x"):
            batch = pa.RecordBatch.from_pydict({"data": [b"a", b"b"], filled: [None, value]})
            if value is None:
                assert len([*user_records(batch, "s", 1000, lambda: "key")]) == 2
                continue
            with pytest.raises(RecordRefusedError, match=f"'x' in the column {filled}, which"):
                user_records(batch, "s", 1000, lambda: "key")


def test_order_needs_a_key() -> None:
    with pytest.raises(
        OptionError, match="ordered=true needs the column partitionKey, which is missing"
    ):
        check_schema(schema(data="binary"), ordered=True)


def records(rows: list[Row], max_size: int = 1000) -> list[object]:
    drawn = itertools.count()
    return list(user_records(arrow(rows), "s", max_size, lambda: f"random {next(drawn)}"))


def test_rows_become_user_records_and_keys_are_drawn_where_there_is_none() -> None:
    rows: list[Row] = [("k", "0", b"1"), (None, None, b""), ("ü" * 256, LARGEST, b"3")]
    assert records([*rows, (None, None, b"4")]) == [
        rows[0],
        ("random 0", None, b""),
        rows[2],
        ("random 1", None, b"4"),
    ]


def test_data_may_be_text_and_all_other_columns_missing() -> None:
    batch = pa.RecordBatch.from_pydict({"DATA": ["zwölf"]})
    assert list(user_records(batch, "s", 1000, lambda: "r")) == [("r", None, "zwölf".encode())]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("", None, b""), "key '' cannot be put on stream 's': the key has 0 characters"),
        (
            ("k" * 257, None, b""),
            f"key '{'k' * 80}'... cannot be put on stream 's': the key has 257",
        ),
        (("k", None, None), "key 'k' cannot be put on stream 's': its data is null"),
        (("ü", None, bytes(999)), "have 1,001 bytes, but the limit is 1,000"),
        (("k", "-1", b""), "its explicitHashKey is '-1'"),
        (("k", "", b""), "its explicitHashKey is ''"),
        (("k", "007", b""), "without leading zeros"),
        (("k", str(2**128), b""), f"its explicitHashKey is '{2**128}'"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_named(row: Row, said: str) -> None:
    with pytest.raises(RecordRefusedError) as caught:
        records([("ok", None, b"1"), row])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"plane": "N711"}' + bytes(1000), '\'{"plane": "N711"}'),
        ("ä".encode() * 1000, f"'{'ä' * 20}')"),
        (b"x" + "ä".encode() * 1000, f"'x{'ä' * 19}')"),
        (b"\xff\xfe" + bytes(1000), r"b'\xff\xfe"),
    ],
)
def test_a_row_without_a_key_is_named_by_its_place_and_data(data: bytes, shown: str) -> None:
    rows: list[Row] = [("ok", None, b"1"), (None, None, b"2"), (None, None, data)]
    with pytest.raises(RecordRefusedError) as caught:
        records(rows)
    said = str(caught.value)
    assert said.startswith(
        "The record without a partition key (row 3 of the 3 of its Arrow batch, whose data begins "
        f"with {shown}"
    )
    assert "cannot be put on stream 's': its data and key have" in said
    assert "random" not in said
    assert len(said) < 600


def test_a_row_without_key_and_data_is_named_by_its_place() -> None:
    with pytest.raises(
        RecordRefusedError, match=r"key \(row 1 of the 2 of its Arrow batch\) cannot"
    ):
        records([(None, None, None), ("ok", None, b"")])


@pytest.mark.parametrize("column", ["partitionKey", "explicitHashKey"])
def test_a_key_that_is_no_text_is_named(column: str) -> None:
    """As `cast(unhex('ff') AS STRING)` gives it."""
    batch = pa.RecordBatch.from_pydict(
        {"data": [b"a", b"b"], column: pa.array([b"1", b"\xff"]).view(pa.string())}
    )
    with pytest.raises(RecordRefusedError) as caught:
        user_records(batch, "s", 100, str)
    assert f"its {column} begins with b'\\xff', which is not valid UTF-8" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_of_exactly_the_most_bytes_passes() -> None:
    assert len(records([("ü", LARGEST, bytes(998))])) == 1


def options(**given: str) -> WriteOptions:
    return write_options(Options({"streamName": "flights", **given}))


def test_an_aggregate_with_its_key_is_no_larger_than_a_record_may_be() -> None:
    assert options(aggregation="true").aggregate_size == 51_200
    largest = options(aggregation="true", aggregationMaxSize="1048576")
    assert largest.aggregate_size == 1_048_575


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"streamName": "a,b"}, "a query writes to one stream"),
        ({"initialPosition": "latest"}, "is for readStream, not for write and writeStream"),
        ({"aggregationMaxSize": "100"}, "needs the option aggregation=true"),
        ({"aggregation": "true", "aggregationMaxSize": "2000000"}, "from 64 to 1048576"),
        ({"maxRecordSize": "99999999"}, "from 1024 to 10485760"),
        ({"ordered": "maybe"}, "takes true or false"),
    ],
)
def test_a_bad_option_is_explained(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options(**given)


def test_replacing_is_refused() -> None:
    source = KinesisDataSource({"streamName": "flights"})
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(OptionError, match=r'can only be appended to.*mode\("append"\)'):
            writer(SPARK_SCHEMA, True)
