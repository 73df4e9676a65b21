"""Options: every mistake is named, with what the option takes, before anything is called."""

from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.source.options import OPTIONS, parse_options
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"


def test_defaults() -> None:
    options = parse_options({"streamName": "flights"})
    assert options.initial_position is LATEST
    assert options.deaggregate
    assert options.fail_on_data_loss
    assert options.max_records_per_fetch == 10_000
    assert options.min_fetch_period == 1.0
    assert options.pace.spacing == pytest.approx(0.5)
    assert options.pace.cost(2_000_000) == pytest.approx(1.0)


def test_names_are_not_case_sensitive() -> None:
    options = parse_options({"STREAMNAME": "flights", "initialposition": "TRIM_horizon"})
    assert options.address.name == "flights"
    assert options.initial_position is TRIM_HORIZON


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("2026-11-21T08:30:00.123+00:00", 1795249800123),
        ("2026-11-21T09:30:00.123456+01:00", 1795249800123),
    ],
)
def test_an_instant_is_read_to_the_millisecond(text: str, ms: int) -> None:
    options = parse_options({"streamName": "flights", "initialPosition": text})
    assert options.initial_position == AtTimestamp(ms)


def test_an_arn_says_name_and_region() -> None:
    address = parse_options({"streamARN": ARN}).address
    assert (address.name, address.region, address.arn) == ("flights", "eu-west-1", ARN)


def test_limits_can_be_lifted_for_a_local_kinesis() -> None:
    options = parse_options(
        {
            "streamName": "s",
            "shardCallsPerSecond": "unlimited",
            "shardBytesPerSecond": "unlimited",
        }
    )
    assert options.pace.spacing == 0
    assert options.pace.cost(10**9) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either the option streamName or the option streamARN"),
        ({"streamName": "a", "streamARN": ARN}, "not both"),
        ({"streamName": "a b"}, "1 to 128 letters, digits"),
        ({"streamName": "a,b"}, "the name of one stream"),
        ({"streamName": " "}, "streamName is empty"),
        ({"streamName": "a", "initalPosition": "latest"}, "Did you mean initialPosition?"),
        ({"streamName": "a", "qqq": "1"}, "It takes: streamName, streamARN"),
        ({"streamName": "a", "initialPosition": "yesterday"}, "such as 2026-11-21T08:30:00Z"),
        ({"streamName": "a", "initialPosition": "2026-11-21T08:30:00"}, "without a time zone"),
        ({"streamName": "a", "initialPosition": "1969-01-01T00:00:00Z"}, "before 1970"),
        ({"streamName": "a", "region": "eu-wset-1"}, "Did you mean eu-west-1?"),
        ({"streamName": "a", "region": "Ireland"}, "not an AWS region"),
        ({"streamARN": "arn:aws:sqs:eu-west-1:1:x"}, "takes the ARN of a stream"),
        ({"streamARN": ARN, "region": "us-east-1"}, "names a stream in eu-west-1"),
        ({"streamName": "a", "endpoint": "localhost:4566"}, "takes a URL"),
        ({"streamName": "a", "endpoint": "http://u:p@h"}, "may not hold credentials"),
        ({"streamName": "a", "deaggregate": "yes"}, "takes true or false"),
        ({"streamName": "a", "maxRecordsPerFetch": "0"}, "from 1 to 10000"),
        ({"streamName": "a", "maxRecordsPerFetch": "10001"}, "from 1 to 10000"),
        ({"streamName": "a", "minFetchPeriod": "1 fortnight"}, "a number and a unit"),
        ({"streamName": "a", "shardCallsPerSecond": "0"}, "a number above 0, or unlimited"),
        ({"streamName": "a", "awsSecretKey": "hunter2"}, "credentials in options"),
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
    with pytest.raises(OptionError, match=f"Did you mean {name}\\?"):
        parse_options({"streamName": "a", name[:-1] + "q" + name[-1]: "x"})
