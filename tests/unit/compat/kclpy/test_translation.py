"""The settings from each key of a properties file, and the error for each bad value."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.compat.kclpy.translation import (
    parse_application,
    read_application,
    read_executable,
)
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import FOUND_BY_BOTO, CredentialSource
from sparkinesis.worker.aws_options import FanOutOptions, LeaseTableOptions
from sparkinesis.worker.on_error import Retry
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import RecordProcessor

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"
ROLE = "arn:aws:iam::123456789012:role/path/reader"
ON_ERROR = Retry(attempts=3)
LEAST = "applicationName=app\nstreamName=flights\n"


class Processor(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        pass


def parse(text: str) -> Application:
    return parse_application(text, "my.properties", Processor, ON_ERROR)


def settings(text: str = "") -> Application:
    return parse(LEAST + text)


def test_the_least_that_is_needed() -> None:
    assert settings() == Application("app", "flights", Processor, on_error=ON_ERROR)


def test_every_key_that_has_a_meaning() -> None:
    found = parse(
        f"""
        applicationName = app
        tableName = other-table
        streamArn = {ARN}
        streamName = flights
        workerId = me
        initialPositionInStream = trim_horizon
        failoverTimeMillis = 5000
        maxRecords = 500
        idleTimeBetweenReadsInMillis = 250
        maxPendingProcessRecordsInput = 3
        maxCacheByteSize = 4194304
        maxRecordsCount = 20000
        callProcessRecordsEvenForEmptyRecordList = TRUE
        parentShardPollIntervalMillis = 2000
        taskBackoffTimeMillis = 100
        cleanupLeasesUponShardCompletion = false
        maxLeasesForWorker = 7
        maxLeasesToStealAtOneTime = 2
        gracefulLeaseHandoffTimeoutMillis = 4000
        shutdownGraceMillis = 0
        logWarningForTaskAfterMillis = 1500
        billingMode = PROVISIONED
        initialLeaseTableReadCapacity = 3
        initialLeaseTableWriteCapacity = 4
        leaseTablePitrEnabled = true
        leaseTableDeletionProtectionEnabled = true
        kinesisEndpoint = https://vpce-1.kinesis.example.com
        dynamoDBEndpoint = http://127.0.0.1:8000
        AwsCredentialsProvider = DefaultCredentialsProvider
        executableName = app.py
        """
    )
    assert found == Application(
        "app",
        ARN,
        Processor,
        on_error=ON_ERROR,
        table_name="other-table",
        region="eu-west-1",
        endpoint="https://vpce-1.kinesis.example.com",
        dynamodb_endpoint="http://127.0.0.1:8000",
        initial_position="trim_horizon",
        worker_id="me",
        credentials=FOUND_BY_BOTO,
        options=WorkerOptions(
            failover_time=5.0,
            max_records=500,
            idle_time=0.25,
            max_pages_ahead=3,
            max_bytes_ahead=4_194_304,
            max_records_ahead=20_000,
            call_even_for_empty_batches=True,
            parent_poll_interval=2.0,
            task_backoff=0.1,
            cleanup_leases=False,
            max_leases=7,
            max_leases_to_steal=2,
            handoff_timeout=4.0,
            shutdown_timeout=0.0,
            processing_time_limit=1.5,
            table=LeaseTableOptions("PROVISIONED", 3, 4, True, True),
        ),
    )


@pytest.mark.parametrize(
    ("millis", "idle_time", "calls"),
    [
        (0, 0.2, 5.0),
        (100, 0.2, 5.0),
        (200, 0.2, 5.0),
        (220, 0.22, 1 / 0.22),
        (250, 0.25, 4.0),
        (3000, 3.0, 4.0),
    ],
)
def test_reads_are_as_close_as_the_daemon_makes_them(
    millis: int, idle_time: float, calls: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    found = settings(f"idleTimeBetweenReadsInMillis={millis}").options
    assert (found.idle_time, found.shard_calls_per_second) == (idle_time, calls)
    raised = f"idleTimeBetweenReadsInMillis is {millis}, and is raised to 200, as in the KCL"
    assert (raised in caplog.text) == (millis < 200)


def test_an_instant_comes_before_a_named_position() -> None:
    found = settings("initialPositionInStream=LATEST\ninitialPositionInStreamExtended=1636609142")
    assert found.initial_position == datetime(2021, 11, 11, 5, 39, 2, tzinfo=timezone.utc)


def test_the_arn_names_the_stream_and_its_region(caplog: pytest.LogCaptureFixture) -> None:
    found = settings(f"streamArn={ARN.replace('flights', 'other')}")
    assert (found.address().name, found.region) == ("other", "eu-west-1")
    assert "stream other) takes precedence over streamName (flights)" in caplog.text
    assert settings("regionName=us-west-2").region == "us-west-2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("streamName=a,b", "line 3: streamName is 'a,b', which is not one stream"),
        ("streamName=a b", "line 3: streamName is 'a b', which is not one stream"),
        (f"streamArn={ARN}, {ARN}2", "which is not one stream"),
        ("streamNames=a", "line 3: streamNames is not a key of the MultiLangDaemon"),
        ("streams=a", "streams is not a key"),
        ("stream_names=a", "stream_names is not a key"),
        ("streamNameList=a", "streamNameList is not a key"),
        ("multiStreamTracker=com.example.Tracker", "multiStreamTracker is not a key"),
        ("MultiStreamMode=true", "MultiStreamMode is not a key"),
        ("formerStreamsLeasesDeletionStrategy=x", "formerStreamsLeasesDeletionStrategy is not"),
    ],
)
def test_several_streams_are_refused_with_the_way_to_read_them(text: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("my.properties, line ")
    assert "Application(name, streams=[...], processor=...)" in str(caught.value)
    assert "applicationName of its own" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["streamName=flights", "streamname=a,b", "streamInfoMode=DISABLED"]
)
def test_one_stream_stays_one_stream(text: str) -> None:
    assert settings(text + "\nworkerId=w").worker_id == "w"


@pytest.mark.parametrize(
    ("kinesis", "dynamodb"),
    [("https://vpce-1.example.com", None), ("http://127.0.0.1:1", "http://127.0.0.1:1")],
)
def test_only_a_local_kinesis_is_dynamodb_as_well(kinesis: str, dynamodb: str | None) -> None:
    assert settings(f"kinesisEndpoint={kinesis}").table().endpoint == dynamodb


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            "timeoutInSeconds=60\nlogWarningForTaskAfterMillis=5",
            {"processing_time_limit": 60.0, "give_up_after_limit": True},
        ),
        ("isGracefulLeaseHandoffEnabled=false", {"handoff_timeout": 0}),
        ("isGracefulLeaseHandoffEnabled=true", {"handoff_timeout": 30}),
        ("maxRecords=5\nmaxRecords=6", {"max_records": 6}),
        ("failoverTimeMillis=3600000", {"failover_time": 3_600}),
        ("shutdownGraceMillis=3600000", {"shutdown_timeout": 3_600}),
        ("logWarningForTaskAfterMillis=7200000", {"processing_time_limit": 7_200}),
    ],
)
def test_the_options_of_a_key(text: str, options: dict[str, Any]) -> None:
    found = settings(text).options
    assert {name: getattr(found, name) for name in options} == options


CONSUMER = f"{ARN}/consumer/c:1700000000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("retrievalMode=DEFAULT", None),
        ("retrievalMode=POLLING", None),
        ("retrievalMode=POLLING\nfanoutConfig.consumerName=c", None),
        ("retrievalMode=FANOUT", FanOutOptions()),
        ("retrievalMode=fanout\nmaxRecords=5", FanOutOptions()),
        ("retrievalMode=FANOUT\nfanoutConfig.consumerName=c", FanOutOptions(consumer_name="c")),
        ("fanoutConfig.consumerName=c", FanOutOptions(consumer_name="c")),
        ("retrievalMode=DEFAULT\nfanoutConfig.consumerName=c\nmaxRecords=5", None),
        (
            f"fanoutConfig.consumerName=c\nfanoutConfig.consumerArn={CONSUMER}",
            FanOutOptions(consumer_arn=CONSUMER),
        ),
    ],
)
def test_enhanced_fan_out_is_what_was_asked_for(text: str, expected: FanOutOptions | None) -> None:
    options = settings(text).options
    assert options.retrieval == ("polling" if expected is None else "efo")
    assert options.fan_out == (expected or FanOutOptions())


def test_a_key_without_a_value_is_not_given() -> None:
    assert settings("workerId =\nmaxRecords=\n") == settings()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DefaultCredentialsProvider", FOUND_BY_BOTO),
        ("DefaultAWSCredentialsProviderChain", FOUND_BY_BOTO),
        ("ProfileCredentialsProvider|ops", CredentialSource(profile="ops")),
        ("ProfileCredentialsProvider|profileName=ops", CredentialSource(profile="ops")),
        (
            f"StsAssumeRoleCredentialsProvider|{ROLE}|me",
            CredentialSource(role_arn=ROLE, session_name="me"),
        ),
        (
            # As it stands in files, with the package and another one to fall back to.
            f"a.KclStsAssumeRoleCredentialsProvider|{ROLE}|me|endpointRegion=eu-west-1|externalId=a=b,X",
            CredentialSource(
                role_arn=ROLE,
                session_name="me",
                external_id="a=b",
                sts_endpoint="https://sts.eu-west-1.amazonaws.com",
            ),
        ),
        (
            f"KclSTSAssumeRoleSessionCredentialsProvider|{ROLE}|me|endpoint=https://sts.x^eu-west-1",
            CredentialSource(role_arn=ROLE, session_name="me", sts_endpoint="https://sts.x"),
        ),
    ],
)
@pytest.mark.parametrize("key", ["AwsCredentialsProvider", "AWSCredentialsProvider"])
def test_credential_providers(key: str, value: str, expected: CredentialSource) -> None:
    assert settings(f"{key}={value}").credentials == expected


def test_keys_without_meaning_are_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings("processingLanguage=python\nmetricsMaxQueueSize=9\nfanoutConfig.retryBackoffMillis=1")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.message.endswith(
        "processingLanguage, fanoutConfig.retryBackoffMillis, metricsMaxQueueSize."
    )


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("streamname", "Did you mean streamName?"),
        ("maxRecord", "Did you mean maxRecords?"),
        ("xyzzy", "ignored."),
    ],
)
def test_an_unknown_key_is_warned_about(
    key: str, near: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings(f"{key}=1")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith(f"my.properties, line 3: {key} is not a known key")
    assert record.message.endswith(near)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maxRecords=10001", "maxRecords is '10001'; must be a whole number from 1 to 10000"),
        ("maxRecords=1e3", "maxRecords is '1e3'; must be a whole number"),
        ("maxLeasesForWorker=0", "from 1 to"),
        ("failoverTimeMillis=99", "Millis is '99'; must be a whole number of milliseconds"),
        ("failoverTimeMillis=3600001", "is '3600001'; must be at most 3,600,000 milliseconds"),
        ("failoverTimeMillis=10s", "milliseconds, at least 100"),
        ("shutdownGraceMillis=-1", "at least 0"),
        ("timeoutInSeconds=0", "at least 1"),
        ("cleanupLeasesUponShardCompletion=no", "must be true or false"),
        ("initialPositionInStream=EARLIEST", "must be LATEST or TRIM_HORIZON"),
        ("initialPositionInStream=AT_TIMESTAMP", "set initialPositionInStreamExtended"),
        ("initialPositionInStreamExtended=2021-11-11", "a whole number of seconds since 1970"),
        ("initialPositionInStreamExtended=1636609142000", "looks like milliseconds: 1636609142?"),
        ("streamArn=flights", "must be the ARN of a stream"),
        ("regionName=Ireland", "must be an AWS region"),
        ("kinesisEndpoint=127.0.0.1:4566", "must be a URL"),
        ("retrievalMode=PUSH", "must be FANOUT, POLLING or DEFAULT"),
        ("retrievalMode=FANOUT\nfanoutConfig.consumerName=a b", "a consumer name has 1 to 128"),
        ("billingMode=FREE", "PAY_PER_REQUEST or PROVISIONED"),
        ("tableName=a b", "a table name has 3 to 255 letters"),
        (f"streamArn={ARN}\nregionName=us-east-1", "line 4: regionName is us-east-1, but"),
        ("AwsCredentialsProvider=StsAssumeRoleCredentialsProvider|x", "takes a role ARN and a"),
        (
            f"AwsCredentialsProvider=StsAssumeRoleCredentialsProvider|{ROLE}|s|endpointRegion=x",
            "endpointRegion= takes an AWS region",
        ),
        ("AwsCredentialsProviderDynamoDB=ProfileCredentialsProvider|other", "differs from"),
    ],
)
def test_bad_values_are_told_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        settings(text)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"my.properties, line {2 + len(text.splitlines())}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AwsCredentialsProvider=StsAssumeRoleCredentialsProvider|x|externalId=geheim", "role"),
        ("kinesisEndpoint=u:geheim@host", "kinesisEndpoint"),
        ("kinesisEndpoint=host/?token=geheim", "kinesisEndpoint cannot be used"),
    ],
)
def test_no_secret_is_part_of_an_error(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        settings(text)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("applicationName=app", "names no stream"),
        ("streamName=s", "names no application"),
        ("streamName=s\napplicationName=ab", "use at least 3 characters"),
    ],
)
def test_what_is_missing(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.properties cannot be read: No such file"):
        read_application(tmp_path / "none.properties", Processor, ON_ERROR)


def test_the_program_that_the_daemon_would_start(tmp_path: Path) -> None:
    file = tmp_path / "my.properties"
    file.write_text("executableName = a.py\nexecutableName: python b.py \n")
    assert read_executable(file) == "python b.py"
    file.write_text("executableName =\n")
    with pytest.raises(OptionError, match="no executableName"):
        read_executable(file)


def test_all_bad_values_are_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        parse(
            "regionName = mars\nmaxRecords = many\nretrievalMode = PUSH\napplicationName = a\n"
            "AwsCredentialsProvider = ProfileCredentialsProvider|one\n"
            "AwsCredentialsProviderDynamoDB = ProfileCredentialsProvider|two\n"
        )
    first, *errors = str(caught.value).split("\n- ")
    assert first == "The options have 6 errors:"
    starts = ("regionName is", "maxRecords is 'many'", "retrievalMode is 'PUSH'")
    for number, (error, start) in enumerate(zip(errors, starts, strict=False), 1):
        assert error.startswith(f"my.properties, line {number}: {start}")
    assert errors[3].startswith("my.properties names no stream")
    assert errors[4].startswith("my.properties, line 4: applicationName is 'a'. It is also the")
    assert errors[5].startswith("my.properties, line 6: AwsCredentialsProviderDynamoDB differs")
