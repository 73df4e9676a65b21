"""Options: every mistake is named, with what the option takes, before anything is called."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import (
    LongType,
    StructField,
    StructType,
)

from sparkinesis.errors import OffsetError, OptionError, check_all
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.source.options.checked_options import (
    FanOutRead,
    StreamReadOptions,
    stream_read_options,
)
from sparkinesis.source.options.option_table import CONNECTOR, OPTIONS, Options, Use
from sparkinesis.source.options.values import known_regions, removed_stream
from sparkinesis.source.row_columns import SCHEMA
from sparkinesis.stream.address import CredentialSource, StreamAddress
from sparkinesis.stream.position import LATEST, FromApplication
from tests.documents import ROOT

EXAMPLES = {
    "initialPosition": "latest",
    "removedStreams": "drop",
    "columns": "data, stream",
    "deaggregate": "true",
    "failOnDataLoss": "true",
    "maxRecordsPerFetch": "5",
    "minFetchPeriod": "1s",
    "skipOlderThan": "2 minutes",
    "maxRecordsPerTrigger": "5",
    "maxBytesPerTrigger": "5m",
    "minRowsPerTrigger": "100",
    "maxTriggerDelay": "1 minute",
    "maxShardDrift": "unbounded",
    "shardCallsPerSecond": "5",
    "shardBytesPerSecond": "5",
    "dynamodbEndpoint": "http://127.0.0.1:1",
    "consumerMode": "efo",
    "consumerName": "flights-1",
    "requireConsumerDeregistration": "true",
    "startingPosition": "latest",
    "endingPosition": "latest",
    "filterPushdown": "true",
    "ordered": "true",
    "aggregation": "true",
    "aggregationMaxSize": "2000",
    "maxRecordSize": "2000",
    "checkpointLocation": "/checkpoint",
    "queryName": "flights",
}
"""A value that each option takes which is not for every use."""

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"

ROLE = "arn:aws:iam::123456789012:role/team/reader"


def parse_options(options: dict[str, str]) -> StreamReadOptions:
    return stream_read_options(Options(options))


def test_defaults() -> None:
    options = parse_options({"streamName": "flights"})
    assert options.initial_position is LATEST
    assert options.min_fetch_period is None
    reading = options.reading
    assert reading.columns == tuple(SCHEMA.names)
    assert reading.deaggregate
    assert reading.fail_on_data_loss
    assert reading.max_records_per_fetch == 10_000
    assert reading.pace.spacing == pytest.approx(0.6)
    assert reading.pace.cost(2_000_000) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100", 100),
        ("100b", 100),
        ("100 bytes", 100),
        ("512k", 512 << 10),
        ("64m", 64 << 20),
        ("64 MB", 64 << 20),
        ("64MiB", 64 << 20),
        (" 1 g ", 1 << 30),
    ],
)
def test_a_size_may_have_a_blank_and_any_common_unit(text: str, size: int) -> None:
    options = parse_options({"streamName": "s", "maxBytesPerTrigger": text})
    assert options.allowance.bytes == size


def test_words_for_true_and_false() -> None:
    for text in ("true", "yes", "ON", "1", " True "):
        assert Options({"streamName": "s", "ordered": text})["ordered"] is True
    for text in ("false", "no", "Off", "0", " False "):
        assert Options({"streamName": "s", "failOnDataLoss": text})["failOnDataLoss"] is False


def test_columns_are_taken_in_their_order_and_any_case() -> None:
    options = parse_options({"streamName": "s", "columns": " DATA,partitionkey , shardId"})
    assert options.reading.columns == ("data", "partitionKey", "shardId")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("data,value", "has 'value'; it takes one or more of partitionKey, data, stream"),
        ("data,", "has ''; it takes"),
        ("", "has ''; it takes"),
        ("data, Data", "The option columns has data twice"),
    ],
)
def test_wrong_columns(columns: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_options({"streamName": "s", "columns": columns})


def test_an_application_keeps_its_name_as_written() -> None:
    options = parse_options({"streamName": "s", "initialPosition": "Application:My_App.v2-x"})
    assert options.initial_position == FromApplication("My_App.v2-x")
    assert options.dynamodb_endpoint is None


@pytest.mark.parametrize(
    ("endpoint", "dynamodb", "used"),
    [
        ("http://127.0.0.1:4566", None, "http://127.0.0.1:4566"),
        ("http://localhost:4566", "http://localhost:8000", "http://localhost:8000"),
        ("https://vpce-1.kinesis.eu-west-1.vpce.amazonaws.com", None, None),
    ],
)
def test_a_local_kinesis_is_the_dynamodb_as_well(
    endpoint: str, dynamodb: str | None, used: str | None
) -> None:
    given = {"streamName": "s", "initialPosition": "application:app", "endpoint": endpoint}
    if dynamodb is not None:
        given["dynamodbEndpoint"] = dynamodb
    assert parse_options(given).dynamodb_endpoint == used


def test_a_query_polls_unless_it_asks_for_enhanced_fan_out() -> None:
    assert parse_options({"streamName": "a"}).fan_out is None
    assert parse_options({"streamName": "a", "consumerMode": "Polling"}).fan_out is None
    options = {"streamName": "a", "consumerMode": "EFO", "consumerName": "flights_1.x-y"}
    assert parse_options(options).fan_out == FanOutRead("flights_1.x-y", deregister=False)
    options["requireConsumerDeregistration"] = "true"
    assert parse_options(options).fan_out == FanOutRead("flights_1.x-y", deregister=True)


def test_an_arn_says_name_and_region() -> None:
    (address,) = parse_options({"streamARN": ARN}).reading.addresses
    assert (address.name, address.region, address.arn) == ("flights", "eu-west-1", ARN)


def test_every_region_that_has_kinesis_may_be_given() -> None:
    for region in known_regions():
        (address,) = parse_options({"streamName": "a", "region": region}).reading.addresses
        assert address == StreamAddress("a", None, region, is_querys=True)


def test_a_role_goes_with_the_address_of_every_stream() -> None:
    options = {"streamName": "a,b", "roleArn": ROLE, "roleExternalId": "e:x/1", "profile": "p"}
    for address in parse_options(options).reading.addresses:
        assert address.credentials == CredentialSource("p", ROLE, "e:x/1", "sparkinesis", None)
    (address,) = parse_options({"streamName": "a"}).reading.addresses
    assert address.credentials == CredentialSource()


def test_limits_can_be_lifted_for_a_local_kinesis() -> None:
    lifted = dict.fromkeys(("shardCallsPerSecond", "shardBytesPerSecond"), "unlimited")
    pace = parse_options({"streamName": "s", **lifted}).reading.pace
    assert pace.spacing == 0
    assert pace.cost(10**9) == 0


def test_several_streams_are_named_in_one_list() -> None:
    streams = parse_options({"streamName": "a, b", "region": "eu-west-1"}).reading.streams
    assert {name: address.region for name, address in streams.items()} == {
        "a": "eu-west-1",
        "b": "eu-west-1",
    }
    other = ARN.replace("flights", "orders")
    streams = parse_options({"streamARN": f"{ARN},{other}"}).reading.streams
    assert {name: address.arn for name, address in streams.items()} == {
        "flights": ARN,
        "orders": other,
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_for_another_use_is_refused(name: str) -> None:
    options = Options({"streamName": "a", **({name: EXAMPLES[name]} if name in EXAMPLES else {})})
    for use in Use:
        if use in OPTIONS[name].uses or name not in options.given:
            check_all(options.checks({use}))
        else:
            with pytest.raises(OptionError, match=f"The option {name} is for "):
                check_all(options.checks({use}))
    assert name in EXAMPLES or OPTIONS[name].uses == frozenset(Use)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either the option streamName or the option streamARN"),
        ({"streamName": "a", "streamARN": ARN}, "not both"),
        ({"streamName": "a b"}, "1 to 128 letters, digits"),
        ({"streamName": "a,,b"}, "an empty entry"),
        ({"streamName": "a,b,a"}, "stream a is named more than once"),
        ({"streamARN": f"{ARN},{ARN.replace('eu-west', 'us-east')}"}, "reads one region"),
        ({"streamName": " "}, "streamName is empty"),
        ({"streamName": "a", "initialPosition": "yesterday"}, "such as 2026-11-21T08:30:00Z"),
        ({"streamName": "a", "region": "eu-wset-1"}, "Did you mean eu-west-1?"),
        ({"streamName": "a", "region": "Ireland"}, "not an AWS region"),
        ({"streamARN": "arn:aws:sqs:eu-west-1:1:x"}, "takes the ARN of a stream"),
        ({"streamARN": ARN, "region": "us-east-1"}, "names a stream in eu-west-1"),
        ({"streamName": "a", "endpoint": "localhost:4566"}, "takes a URL"),
        ({"streamName": "a", "endpoint": "http://h:4566x"}, "takes a URL"),
        ({"streamName": "a", "endpoint": "http://[::1"}, "takes a URL"),
        ({"streamName": "a", "endpoint": "http://u:p@h"}, "may not hold credentials"),
        ({"streamName": "a", "endpoint": "u:hunter2@h:4566"}, "may not hold credentials"),
        ({"streamName": "a", "deaggregate": "maybe"}, "takes true or false (or yes, no, on, off,"),
        *(
            ({"streamName": "a", "initialPosition": f"application:{name}"}, "of a KCL application")
            for name in ("", "ab", "a b c", "a/b/c", "x" * 256)
        ),
        ({"streamName": "a", "dynamodbEndpoint": "http://h"}, "=application:NAME only"),
        ({"streamName": "a", "removedStreams": "keep"}, "'keep'; it takes fail or drop."),
        ({"streamName": "a", "maxRecordsPerFetch": "0"}, "from 1 to 10000"),
        ({"streamName": "a", "maxRecordsPerFetch": "10001"}, "from 1 to 10000"),
        ({"streamName": "a", "minFetchPeriod": "1 fortnight"}, "a number and a unit"),
        ({"streamName": "a", "skipOlderThan": "2"}, "a number and a unit"),
        ({"streamName": "a", "maxRecordsPerTrigger": "0"}, "a whole number from 1"),
        (
            {"streamName": "a", "maxBytesPerTrigger": "10 lots"},
            "such as 512k, 64 MB or 1g (1 MB is 1,048,576 bytes)",
        ),
        ({"streamName": "a", "shardCallsPerSecond": "0"}, "a number above 0, or unlimited"),
        ({"streamName": "a", "maxBytesPerTrigger": "64 MB/s"}, "it takes bytes"),
        ({"streamName": "a", "maxBytesPerTrigger": "0 MB"}, "a whole number above 0"),
        ({"streamName": "a", "awsSecretKey": "hunter2"}, "credentials in options"),
        ({"streamName": "a", "aws_secret_access_key": "hunter2"}, "credentials in options"),
        ({"streamName": "a", "sessionToken": "hunter2"}, "credentials in options"),
        ({"streamName": "a", "profile": ""}, "profile is empty"),
        ({"streamName": "a", "roleArn": "reader"}, "takes the ARN of an IAM role"),
        ({"streamName": "a", "roleArn": ROLE.replace("iam:", "sts:")}, "takes the ARN of an IAM"),
        ({"streamName": "a", "roleArn": ROLE, "roleSessionName": "a b"}, "takes 2 to 64 letters"),
        ({"streamName": "a", "roleArn": ROLE, "roleExternalId": "hunter2!"}, "has 8 characters"),
        ({"streamName": "a", "roleArn": ROLE, "stsEndpoint": "sts"}, "takes a URL"),
        ({"streamName": "a", "roleExternalId": "hunter2"}, "set the option roleArn too"),
        ({"streamName": "a", "roleSessionName": "me"}, "set the option roleArn too"),
        ({"streamName": "a", "stsEndpoint": "http://sts"}, "set the option roleArn too"),
        ({"streamName": "a", "consumerMode": "push"}, "takes polling, or efo"),
        ({"streamName": "a", "consumerMode": "efo"}, "Give each query a name of its own"),
        ({"streamName": "a", "consumerMode": "efo", "consumerName": "a b"}, "1 to 128 letters"),
        ({"streamName": "a", "consumerName": "a"}, "set the option consumerMode to efo"),
        (
            {"streamName": "a", "requireconsumerderegistration": "true"},
            "requireConsumerDeregistration applies to enhanced fan-out only",
        ),
    ],
)
def test_a_bad_option_is_explained_in_one_paragraph(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(options)
    text = str(caught.value)
    assert said in text
    assert "\n" not in text
    assert "hunter2" not in text


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_suggested_for_a_typing_error_in_it(name: str) -> None:
    is_for_streams = Use.READ_STREAM in OPTIONS[name].uses
    with pytest.raises(OptionError, match=f"Did you mean {name}(\\?| \\(of)") as caught:
        parse_options({"streamName": "a", name[:-1] + "q" + name[-1]: "x"})
    assert ("(of " in str(caught.value)) is not is_for_streams


@pytest.mark.parametrize("use", Use)
def test_an_unknown_option_lists_those_of_its_use_and_no_others(use: Use) -> None:
    with pytest.raises(OptionError) as caught:
        check_all(Options({"streamName": "a", "zzz": "x"}).checks({use}))
    text = str(caught.value)
    assert text.startswith(f"The kinesis source has no option 'zzz'. For {use.value} it takes: ")
    listed = text.removesuffix(".").split("takes: ")[1].split(", ")
    assert listed == [name for name, option in OPTIONS.items() if use in option.uses]


def test_an_option_of_the_use_at_hand_is_suggested_before_a_nearer_one_of_another_use() -> None:
    with pytest.raises(OptionError, match=r"Did you mean aggregation\?"):
        check_all(Options({"streamName": "a", "aggregat": "x"}).checks({Use.WRITE}))
    with pytest.raises(OptionError, match=r"Did you mean deaggregate\?"):
        check_all(Options({"streamName": "a", "aggregat": "x"}).checks({Use.READ}))


def test_the_names_of_awslabs_connector_lead_to_those_here() -> None:
    page = (ROOT / "docs" / "coming-from" / "awslabs.md").read_text(encoding="utf-8")
    for theirs, ours in CONNECTOR.items():
        assert re.search(rf"(?im)^\|.*`{re.escape(theirs)}`.*\| .*`{ours}`", page), theirs
        (use, *_) = OPTIONS[ours].uses & {Use.READ_STREAM, Use.WRITE}
        with pytest.raises(OptionError, match=rf"Did you mean {ours}\?"):
            check_all(Options({"streamName": "a", theirs: "x"}).checks({use}))
    with pytest.raises(OptionError, match=r"Did you mean startingPosition\?"):
        check_all(Options({"streamName": "a", "kinesis.startingPosition": "x"}).checks({Use.READ}))


def test_an_unknown_option_is_told_before_a_stream_is_missed() -> None:
    source = KinesisDataSource({"streamnme": "a"})
    with pytest.raises(OptionError, match=r"has no option 'streamnme'\. Did you mean streamName\?"):
        source.schema()


def test_a_known_option_is_told_by_its_documented_name() -> None:
    """Spark hands the names over in lower case."""
    with pytest.raises(OptionError, match="The option maxBytesPerTrigger is '5 lots'"):
        parse_options({"streamname": "a", "maxbytespertrigger": "5 lots"})
    with pytest.raises(OptionError, match="The option filterPushdown is for read, not for"):
        parse_options({"streamname": "a", "filterpushdown": "true"})
    with pytest.raises(OptionError, match="The option endpoint has 5,000 characters"):
        parse_options({"streamname": "a", "ENDPOINT": "x" * 5_000})


@pytest.mark.parametrize("method", ["reader", "streamReader"])
def test_a_schema_of_the_users_own_is_refused_with_what_to_do(method: str) -> None:
    source = KinesisDataSource({"streamName": "a"})
    read = getattr(source, method)
    with pytest.raises(OptionError) as caught:
        read(StructType([StructField("altitude", LongType())]))
    text = str(caught.value)
    assert ".schema(...) or an altered table asks for others: altitude BIGINT. Leave out" in text
    assert 'from_json(col("data").cast("string"), schema)' in text
    # Spark passes the source's own columns when the user gives no schema.
    assert read(SCHEMA)


def test_the_address_of_a_removed_stream_is_that_of_the_others() -> None:
    (one,) = parse_options({"streamName": "a", "region": "eu-west-1"}).reading.addresses
    assert removed_stream("b", [one]) == StreamAddress("b", None, "eu-west-1", is_querys=True)
    (one,) = parse_options({"streamARN": ARN, "roleArn": ROLE}).reading.addresses
    other = ARN.replace("stream/flights", "stream/cars")
    found = removed_stream("cars", [one])
    role = CredentialSource(role_arn=ROLE)
    assert found == StreamAddress("cars", other, "eu-west-1", credentials=role, is_querys=True)
    two = StreamAddress("flights", ARN.replace("123456789012", "210987654321"), "eu-west-1")
    with pytest.raises(OffsetError, match=r"of several accounts\. Name 'cars' once more until"):
        removed_stream("cars", [one, two])


def test_the_page_of_batch_reads_names_the_options_that_they_take() -> None:
    page = (ROOT / "docs" / "batch-reads.md").read_text("utf-8")
    _, named = page.split("takes these of [its options](options.md)")
    named, _ = named.split("Any other option is refused")
    taken = {name for name, option in OPTIONS.items() if Use.READ in option.uses}
    assert {*re.findall("`([a-zA-Z]+)`", named)} == taken


def test_a_whole_number_may_be_as_large_as_its_error_says() -> None:
    most = 10**18 - 1
    parse = OPTIONS["maxRecordsPerTrigger"].parse
    assert parse("maxRecordsPerTrigger", str(most)) == most
    with pytest.raises(OptionError, match=f"a whole number from 1 to {most}"):
        parse("maxRecordsPerTrigger", str(most + 1))
