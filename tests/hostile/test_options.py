"""Any text for any option: understood, or refused by name before anything is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from typer.testing import CliRunner

from sparkinesis.application import Application
from sparkinesis.cli.app import app
from sparkinesis.errors import OptionError
from sparkinesis.fleet.fleet_options import FleetOptions
from sparkinesis.local import LocalServer
from sparkinesis.monitor.reset_arguments import parse_target
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.source.options.checked_options import (
    batch_read_options,
    stream_read_options,
    write_options,
)
from sparkinesis.source.options.option_table import OPTIONS, Options
from sparkinesis.stream.address import stream_address
from sparkinesis.stream.calls.caller import call_client
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.worker.aws_options import FanOutOptions, LeaseTableOptions
from sparkinesis.worker.options import WorkerOptions
from tests.examples import examples
from tests.journal import Journal, Journaling

USES: dict[str, Callable[[Options], Any]] = {
    "readStream": stream_read_options,
    "read": batch_read_options,
    "write": write_options,
}
ODD = [
    *("", " ", "0", "-1", "1.5", "1e5", "9" * 400, "9" * 5000, "0." + "0" * 400 + "1", "nan"),
    *("inf", "true", "TRUE", "yes", "\u0661\u0662", "1_000", "10 parsecs", "4000 days"),
    "9" * 30 + " days",
    *("latest", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-11-21T08:30"),
    *("application:", "application:x y", "\ud800", "a\x00b", "a b", "x" * 100_000, ",", "a,,b"),
    *("http://a b", "http://a_b.c", "http://-x", "http://x:99999", "http://[::1", "http://\ud800"),
    *("http://a..b", "http://me:pw@x", "ftp://x", "http://", "http://" + "a" * 64, "http://\u00e4"),
    *("{", "{}", "[]", '{"a":1}', '{"a":NaN}', '{"a":"5","a":"6"}', '{"a":' * 5000, "null"),
    *('{"a":"AT_TIMESTAMP:999999999999999"}', '{"a":' + "9" * 5000 + "}", '{"a":{"b":{}}}'),
    *("arn:aws:kinesis:us-east-1:123456789012:stream/x", "arn:aws:s3:::x", "us-east-1", "mars-1"),
]
texts = st.one_of(
    st.sampled_from(ODD),
    st.text(max_size=30),
    st.from_regex(r"[0-9]{1,30}(\.[0-9]{1,9})? ?(ms|s|min|h|d|days|k|g|b)?", fullmatch=True),
    st.from_regex(r"https?://[a-z0-9.:\[\]_@/%-]{1,30}", fullmatch=True),
)
# What else an option needs, so that nothing but its value can be wrong.
BESIDE: dict[str, dict[str, str]] = {
    "aggregationMaxSize": {"aggregation": "true"},
    "roleExternalId": {"roleArn": "arn:aws:iam::123456789012:role/x"},
    "roleSessionName": {"roleArn": "arn:aws:iam::123456789012:role/x"},
    "stsEndpoint": {"roleArn": "arn:aws:iam::123456789012:role/x"},
    "consumerName": {"consumerMode": "efo"},
    "requireConsumerDeregistration": {"consumerMode": "efo", "consumerName": "me"},
    "dynamodbEndpoint": {"initialPosition": "application:app"},
}


def given_with(name: str, text: str) -> dict[str, str]:
    others = {"region": "us-east-1", "endpoint": "http://127.0.0.1:1", **BESIDE.get(name, {})}
    stream = {} if name == "streamARN" else {"streamName": "flights"}
    return {**stream, **others, name: text}


@settings(max_examples=examples(250), deadline=None)
@given(st.sampled_from(sorted(USES)), st.sampled_from(sorted(OPTIONS)), texts)
@example("read", "endingPosition", '{"flights":{"a":"5","a":"6"}}')
@example("write", "streamName", "a,b")
def test_any_text_is_understood_or_refused_by_name(use: str, name: str, text: str) -> None:
    try:
        found = USES[use](Options(given_with(name, text)))
    except OptionError as error:
        assert any(each in str(error) for each in (name, *BESIDE.get(name, {}))) or (
            name == "consumerMode" and "consumerName" in str(error)
        )
        assert len(str(error)) < 1500
        str(error).encode()
        assert "pw@" not in str(error) or not name.lower().endswith("endpoint")
        return
    if use == "readStream":
        # What a planner computes with them.
        assert (found.min_fetch_period or 0) + (found.skip_older_than or 0) < 10**9
        assert found.allowance.rows >= 1
        pace = found.reading.pace
        assert math.isfinite(pace.calls_per_second)
        assert math.isfinite(pace.bytes_per_second)
        if isinstance(found.initial_position, AtTimestamp):
            assert 1970 <= found.initial_position.instant.year <= 9999
    if name in {"endpoint", "region", "streamName"}:
        address = found.address if use == "write" else found.reading.addresses[0]
        call_client(address)  # as botocore understands it
    if name in {"startingPosition", "endingPosition"} and use == "read":
        for positions in (*found.start.values(), *found.end.values()):
            for position in positions.values():
                if isinstance(position, AtTimestamp):
                    assert position.instant.year <= 9999


# Record processors.


CLASSES: dict[str, Callable[..., Any]] = {
    each.name: kind
    for kind in (WorkerOptions, FleetOptions, FanOutOptions, LeaseTableOptions)
    for each in fields(kind)
}
anything = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 1, 1.5, 10**400, 1e308, math.inf, math.nan, [], {}]),
    st.sampled_from(["", "true", "efo", "5", object(), b"5", (), ("a",), (("a", 1),), 2**31]),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([each.name for each in fields(WorkerOptions)]), anything, min_size=2
    )
)
def test_what_is_refused_alone_is_told_among_others(given: dict[str, Any]) -> None:
    def error_of(options: dict[str, Any]) -> str:
        try:
            WorkerOptions(**options)
        except OptionError as error:
            return str(error)
        return ""

    told = error_of(given)
    for name, value in given.items():
        needs_another = name in {"give_up_after_limit", "unhealthy_after_limit", "idle_time"}
        assert not error_of({name: value}) or name in told or needs_another


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(sorted(CLASSES)), anything)
def test_any_value_of_a_setting_can_be_used_or_is_refused_by_name(name: str, value: Any) -> None:
    try:
        options = CLASSES[name](**{name: value})
    except OptionError as error:
        assert name in str(error) or "heartbeat_interval" in str(error)
        assert len(str(error)) < 1000
        return
    if isinstance(options, WorkerOptions):
        assert options.renew_interval > 0
        assert isinstance(options.max_leases, int)
        assert options.cleanup_leases is True or options.cleanup_leases is False
    if isinstance(options, FleetOptions):
        assert 2 * options.heartbeat_interval <= options.lost_after < 10**9


BEYOND = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=23)))
BAD_APPLICATIONS: list[tuple[str, Any]] = [
    ("name", "a b"),
    ("name", "ab"),
    ("name", "x" * 256),
    ("name", "\ud800abc"),
    ("table_name", "a/b"),
    ("stream", "a b"),
    ("stream", "x" * 129),
    ("stream", "arn:aws:kinesis:us-east-1:12:stream/x"),
    ("stream", "arn:aws:kinesis:us-east-1:123456789012:stream/"),
    ("region", "mars"),
    ("region", ""),
    ("endpoint", "http://a_b"),
    ("endpoint", "here"),
    ("endpoint", "http://me:secret@x"),
    ("dynamodb_endpoint", "http://me:secret@x"),
    ("dynamodb_endpoint", "http://x:0"),
    ("initial_position", BEYOND),
    ("initial_position", datetime(1969, 12, 31, tzinfo=timezone.utc)),
    ("initial_position", "yesterday"),
    ("worker_id", "a\nb"),
    ("worker_id", "x" * 257),
    ("worker_id", "\ud800"),
    ("options", {"failover_time": 3}),
    ("credentials", "me"),
]


@pytest.mark.parametrize(("name", "value"), BAD_APPLICATIONS)
def test_what_an_application_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    given: dict[str, Any] = {"name": "app", "stream": "s", "processor": processor}
    with pytest.raises(OptionError, match=name) as error:
        Application(**{**given, name: value})
    assert "secret" not in str(error.value)
    assert len(str(error.value)) < 400
    str(error.value).encode()


def processor() -> Journaling:
    return Journaling(Journal())


@settings(max_examples=examples(300), deadline=None)
@given(texts)
def test_any_target_of_a_reset_is_a_place_or_refused(text: str) -> None:
    try:
        target = parse_target(text)
    except OptionError as error:
        assert len(str(error)) < 1500
        str(error).encode()
    else:
        if isinstance(target, AtTimestamp):
            assert target.instant.year >= 1970


@settings(max_examples=examples(150), deadline=None)
@given(texts, texts)
def test_any_address_is_one_that_botocore_takes_or_refused(stream: str, endpoint: str) -> None:
    try:
        address = stream_address(stream, "us-east-1", endpoint)
    except OptionError as error:
        assert "stream" in str(error) or "endpoint" in str(error)
        return
    call_client(address)


# Nothing was called.


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


BAD_OPTIONS: Mapping[str, str] = {
    "initialPosition": "9999-12-31T23:59:59-23:59",
    "skipOlderThan": "4000 days",
    "minFetchPeriod": "9" * 400 + "s",
    "shardCallsPerSecond": "0.0001",
    "maxRecordsPerTrigger": "0",
    "consumerMode": "push",
    "streamName": "a b",
    "startPosition": "latest",
}


@settings(max_examples=examples(60), deadline=None)
@given(st.sets(st.sampled_from(sorted(BAD_OPTIONS)), min_size=2))
def test_any_bad_options_are_all_told_by_one_error(names: set[str]) -> None:
    options = {"streamName": "s", "region": "us-east-1"}
    options |= {name: BAD_OPTIONS[name] for name in names}
    with pytest.raises(OptionError) as caught:
        KinesisDataSource(options).streamReader(StructType())
    first, *errors = str(caught.value).split("\n- ")
    assert first == f"The options have {len(names)} errors:"
    assert len(errors) == len(names)
    assert all(any(name in error for error in errors) for name in names)


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_refused_option_of_the_source_costs_no_call(server: LocalServer, name: str) -> None:
    before = len(server.kinesis.calls.select())
    options = {"streamName": "s", "region": "us-east-1", "endpoint": server.endpoint_url}
    with pytest.raises(OptionError, match=name):
        KinesisDataSource({**options, name: BAD_OPTIONS[name]}).streamReader(StructType())
    assert len(server.kinesis.calls.select()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["leases", "a b"],
        ["leases", "app", "--region", "mars"],
        ["leases", "app", "--stream", "a b"],
        ["leases", "app", "--dynamodb-endpoint", "http://me:secret@x"],
        ["leases", "app", "--watch-for", "-1"],
        ["top", "a/b"],
        ["top", "app", "--stream", "arn:aws:s3:::x"],
        ["reset", "app", "--to", "whenever", "--stream", "s", "--yes"],
        ["reset", "app", "--to", "9999-12-31T23:59:59-23:59", "--stream", "s", "--yes"],
        ["reset", "app", "--to", "a=b", "--stream", "s", "--yes"],
        ["reset", "app", "--to", "latest", "--stream", "\u00e4", "--yes"],
    ],
)
def test_a_refused_argument_of_a_command_costs_no_call(
    server: LocalServer, arguments: list[str]
) -> None:
    before = len(server.kinesis.calls.select())
    given = [*arguments, "--endpoint", server.endpoint_url]
    result = CliRunner().invoke(app, given, env={"AWS_DEFAULT_REGION": "us-east-1"})
    assert result.exit_code in {1, 2}
    assert "Traceback" not in result.output
    assert "secret" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert len(server.kinesis.calls.select()) == before
