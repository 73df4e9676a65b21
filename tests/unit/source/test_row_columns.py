"""What becomes of the options of a table: which are taken, and how its columns carry them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from sparkinesis.errors import OptionError
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.source.options.option_table import OPTIONS, ROW_COLUMNS
from sparkinesis.source.row_columns import (
    SCHEMA,
    check_new_table,
    is_new_table,
    new_table_options,
    table_options,
    table_schema,
)

FLIGHTS = {"streamname": "flights", "region": "eu-west-1"}


def handed_over(options: dict[str, str], **properties: str) -> dict[str, str]:
    """What Spark 4.3 passes for a new table."""
    twice = options | {f"option.{name}": value for name, value in options.items()}
    return {**twice, "provider": "kinesis", "owner": "root", **properties}


def test_a_new_table_is_one_of_this_source() -> None:
    assert is_new_table(handed_over(FLIGHTS), "kinesis")
    assert is_new_table({"provider": "Sparkinesis"}, "sparkinesis")
    assert is_new_table({"provider": "kinesis"}, "Kinesis")
    assert not is_new_table({"provider": "parquet"}, "kinesis")
    assert not is_new_table(FLIGHTS, "kinesis")


def test_options_and_properties_are_taken_and_a_users_own_are_not() -> None:
    given = handed_over(FLIGHTS, **{"initialposition": "latest", "team": "blue", "a.b": "c"})
    assert new_table_options(given) == {**FLIGHTS, "initialposition": "latest"}


@pytest.mark.parametrize(
    "name", ["provider", "owner", "comment", "collation", "external", "is_managed_location"]
)
def test_what_spark_says_of_a_table_is_no_option(name: str) -> None:
    assert new_table_options(handed_over({**FLIGHTS, name: "x"})) == FLIGHTS


def test_a_new_table_may_have_options_of_several_uses_beside_wrong_ones() -> None:
    given = {**FLIGHTS, "initialposition": "latest", "ordered": "true", "maxrecordsize": "1"}
    source = KinesisDataSource(handed_over(given | {"region": "mars"}))
    with pytest.raises(OptionError) as caught:
        source.schema()
    first, *errors = str(caught.value).split("\n- ")
    assert [one.split(" is ")[0] for one in errors] == [
        "The option region",
        "The option maxRecordSize",
    ], first


def test_each_option_is_taken_once() -> None:
    given = {name.lower(): "x" for name in OPTIONS}
    assert new_table_options(handed_over(given)) == given


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("awsaccesskeyid", "credentials in options"),
        ("option.aws_session_token", "The option aws_session_token is refused"),
        ("client.secret", "says that it is a secret"),
        ("jdbcPassword", "says that it is a secret"),
        ("team.access_key", "says that it is a secret"),
        ("accessKey.of.team", "says that it is a secret"),
        ("SLACK_TOKEN", "says that it is a secret"),
        ("gcp-credentials", "says that it is a secret"),
        ("secrets", "says that it is a secret"),
        ("dbPasswd", "says that it is a secret"),
        ("path", "has no LOCATION"),
        ("LOCATION", "has no LOCATION"),
    ],
)
def test_what_does_not_belong_into_a_catalog_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=text) as told:
        new_table_options(handed_over(FLIGHTS, **{name: "hunter2"}))
    assert "hunter2" not in str(told.value)


def test_a_misspelled_property_is_refused_like_a_misspelled_option() -> None:
    for given in (
        handed_over({**FLIGHTS, "initial": "x"}),
        handed_over(FLIGHTS, initialpositon="x"),
    ):
        with pytest.raises(OptionError, match=r"has no option .*mean initialPosition"):
            check_new_table(new_table_options(given))


@pytest.mark.parametrize(
    "more",
    [
        {"consumername": "me"},  # for readStream, without consumerMode
        {"startingposition": '{"other": {"s": "1"}}'},  # for read
        {"aggregationmaxsize": "100k"},  # for write, without aggregation
    ],
)
def test_a_table_is_checked_for_each_use(more: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        check_new_table({**FLIGHTS, **more})
    check_new_table(FLIGHTS)


def test_a_table_of_several_streams_is_for_reading() -> None:
    check_new_table({"streamname": "a,b"})
    schema = table_schema({"streamname": "a,b"})
    with pytest.raises(OptionError, match="a query writes to one stream"):
        KinesisDataSource({}).writer(schema, overwrite=False)
    assert KinesisDataSource({}).streamReader(schema)._streams.keys() == {"a", "b"}


def test_the_columns_carry_the_options() -> None:
    schema = table_schema(FLIGHTS)
    assert schema.names == SCHEMA.names == list(ROW_COLUMNS)
    assert table_options(schema) == FLIGHTS
    assert table_options(StructType.fromJson(schema.jsonValue())) == FLIGHTS
    assert table_schema(dict(reversed(FLIGHTS.items()))) == schema, "in whatever order"
    assert "flights" in schema["stream"].metadata["comment"]
    assert "arn:x" in table_schema({"streamarn": "arn:x"})["stream"].metadata["comment"]
    assert table_options(schema.add(StructField("more", IntegerType()))) == FLIGHTS


@pytest.mark.parametrize("columns", ["data,partitionkey", "sequencenumber,stream", "data"])
def test_a_table_of_some_columns_has_no_others(columns: str) -> None:
    given = {**FLIGHTS, "columns": columns}
    schema = table_schema(given)
    assert ",".join(schema.names).lower() == columns
    assert table_options(schema) == given
    assert table_options(StructType(schema.fields[1:])) == {}
    reader = KinesisDataSource({}).streamReader(schema)
    assert reader._options.reading.columns == tuple(schema.names)


def test_a_table_of_some_columns_is_written_by_those_that_a_record_keeps() -> None:
    schema = table_schema({**FLIGHTS, "columns": "sequenceNumber,data"})
    assert KinesisDataSource({}).writer(schema, overwrite=False)
    with pytest.raises(OptionError, match="the column data is missing"):
        KinesisDataSource({}).writer(
            table_schema({**FLIGHTS, "columns": "sequenceNumber"}), overwrite=False
        )


def test_columns_of_two_tables_carry_nothing() -> None:
    one, other = table_schema(FLIGHTS), table_schema({"streamname": "copy"})
    plain = StructType([StructField(each.name, each.dataType) for each in one])
    for strange in (other, plain):
        for mixed in range(len(one)):
            fields = [*one.fields]
            fields[mixed] = strange.fields[mixed]
            assert table_options(StructType(fields)) == {}
    assert table_options(StructType(one.fields[:2])) == {}
    assert table_options(plain) == {}


def test_a_querys_own_options_replace_those_of_the_table() -> None:
    schema = table_schema({**FLIGHTS, "maxrecordspertrigger": "5", "ordered": "true"})
    reader = KinesisDataSource({"maxrecordspertrigger": "7"}).streamReader(schema)
    assert reader._options.allowance.rows == 7
    assert KinesisDataSource({}).writer(schema, overwrite=False)._options.ordered


def test_a_write_that_names_its_stream_takes_nothing_of_the_table_that_is_read() -> None:
    schema = table_schema({**FLIGHTS, "ordered": "true"})
    written = StructType([schema["partitionKey"], schema["data"]])
    options = KinesisDataSource({"streamname": "copy"}).writer(schema, overwrite=False)._options
    assert (options.address.name, options.ordered) == ("copy", False)
    for columns_of_a_read in (schema, written):
        with pytest.raises(OptionError, match="A streaming query does not write to a table"):
            KinesisDataSource({}).streamWriter(columns_of_a_read, overwrite=False)
    with pytest.raises(OptionError, match="if a write names its columns"):
        KinesisDataSource({}).writer(written, overwrite=False)
