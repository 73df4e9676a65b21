"""Options that cannot be used, and processors that are none: an error before anything is called."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from sparkinesis import CredentialSource, DeadLetter, FormerStreams, StreamConfig
from sparkinesis.application import Application
from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.lease.shards.shard_syncer import ShardSyncSettings
from sparkinesis.sinks import DeadLetterStream
from sparkinesis.stream.address import stream_address
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.stream.reading.budget import Pace
from sparkinesis.worker.aws_options import FanOutOptions, LeaseTableOptions
from sparkinesis.worker.lifecycle.streams.stream_config import StreamSettings
from sparkinesis.worker.on_error import Retry, Skip
from sparkinesis.worker.options import AheadLimits, WorkerOptions
from sparkinesis.worker.processors.processor import RecordProcessor


class Processor(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        pass


class WithoutProcessRecords(RecordProcessor):
    pass


class NotDerived:
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"failover_time": 0},
        {"failover_time": float("nan")},
        {"max_records": 10_001},
        {"max_records": 0},
        {"max_leases": 0},
        {"max_pages_ahead": 0},
        {"max_bytes_ahead": 0},
        {"max_records_ahead": 1.5},
        {"max_held_bytes": 1_048_575},
        {"max_held_bytes": True},
        {"max_held_bytes": 2**63},
        {"skip_older_than": -1},
        {"checkpoint_seconds": -1},
        {"checkpoint_records": 0},
        {"checkpoint_records": 2.5},
        {"give_up_after_limit": True},
        {"idle_time": float("inf")},
        {"shard_calls_per_second": 0.0009},
        {"shard_calls_per_second": float("nan")},
        {"shard_calls_per_second": float("inf")},
        {"shard_calls_per_second": True},
        {"shard_calls_per_second": "5"},
        {"shard_bytes_per_second": 2 * 10**12},
        {"shard_bytes_per_second": "Unlimited"},
        {"idle_time": 0.2},
        {"retrieval": "push"},
        {"shutdown_timeout": -1},
        {"unhealthy_after_limit": True},
        {"metrics": [1]},
        {"on_event": 5},
        {"http": "nowhere"},
        {"fan_out": FanOutOptions(deregister=True)},
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        WorkerOptions(**options)


def test_the_pace_of_polling_is_that_of_its_options() -> None:
    assert WorkerOptions().pace == Pace(4.0, 2_000_000.0)
    assert WorkerOptions(shard_calls_per_second=5, shard_bytes_per_second=10).pace == Pace(5.0, 10)
    free = WorkerOptions(shard_calls_per_second="unlimited", shard_bytes_per_second="unlimited")
    assert not free.pace.is_limited
    assert pickle.loads(pickle.dumps(free)).pace == free.pace, "as a fleet's executors get it"


def test_fetching_ahead_and_the_care_for_leases_have_the_limits_of_their_options() -> None:
    options = WorkerOptions(
        max_pages_ahead=1,
        max_bytes_ahead=2,
        max_records_ahead=3,
        audit_interval=4,
        audit_confidence=5,
        cleanup_interval=6,
        cleanup_leases=False,
        parents_first=False,
    )
    assert options.ahead == AheadLimits(1, 2, 3)
    assert options.shard_sync == ShardSyncSettings(
        4, 5, 6, cleanup_leases=False, parents_first=False
    )


def test_a_streams_own_settings_go_before_the_applications() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/web"
    consumer = f"{arn}/consumer/web:1"
    partner = CredentialSource(role_arn="arn:aws:iam::123456789012:role/partner")
    web = StreamConfig(
        arn,
        processor=Processor,
        initial_position=datetime.fromtimestamp(1, timezone.utc),
        on_error=Skip(),
        endpoint="https://vpce.example.com",
        credentials=partner,
        consumer_arn=consumer,
    )
    made = Application(
        "app",
        processor=Processor,
        region="us-east-1",
        streams=[web, StreamConfig("app", region="eu-north-1")],
        options=WorkerOptions(retrieval="efo"),
    )
    own, other = made.plans()
    address = stream_address(arn, "eu-west-1", "https://vpce.example.com", partner)
    assert own == StreamSettings(address, Processor, Skip(), AtTimestamp(1000), consumer)
    assert other == StreamSettings(
        stream_address("app", "eu-north-1", None), Processor, Retry(), made.initial()
    )


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            {"idle_time": 0.2},
            ("is 0.2 s", "_per_second is 4,", "Make idle_time 0.25 or", "_per_second 5."),
        ),
        (
            {"idle_time": 1.5, "shard_calls_per_second": 0.5},
            ("is 1.5 s", "_per_second is 0.5,", "Make idle_time 2 or", "_per_second 0.666667."),
        ),
        (
            {
                "idle_time": 0.1,
                "retrieval": "efo",
                "fan_out": FanOutOptions(fall_back_to_polling=True),
            },
            ("idle_time is 0.1 s", "shard_calls_per_second 10."),
        ),
    ],
    ids=["default-pace", "slow-pace", "may-poll"],
)
def test_an_idle_time_that_the_pace_forbids_is_refused(
    options: dict[str, Any], texts: tuple[str, ...]
) -> None:
    with pytest.raises(OptionError) as caught:
        WorkerOptions(**options)
    assert all(text in str(caught.value) for text in texts), caught.value


@pytest.mark.parametrize(
    "options",
    [
        {"idle_time": 0},
        {"idle_time": 0.25},
        {"idle_time": 0.2, "shard_calls_per_second": 5},
        {"idle_time": 0.333333, "shard_calls_per_second": 3},
        {"idle_time": 0.01, "shard_calls_per_second": "unlimited"},
        {"shard_calls_per_second": 0.1},
        {"idle_time": 0.1, "retrieval": "efo"},
        {"max_held_bytes": 8 * 2**30},
        {"skip_older_than": 86_400, "processing_time_limit": 7_200},
    ],
    ids=str,
)
def test_an_idle_time_that_the_pace_permits_and_large_numbers_are_taken(
    options: dict[str, Any],
) -> None:
    made = WorkerOptions(**options)
    assert {name: getattr(made, name) for name in options} == options


def test_table_options_are_checked() -> None:
    with pytest.raises(OptionError, match="billing_mode"):
        LeaseTableOptions(billing_mode="FREE")  # type: ignore[arg-type]


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"
CONSUMER = f"{ARN}/consumer/app:1700000000"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"consumer_name": ""}, "consumer_name is ''"),
        ({"consumer_name": "a b"}, "1 to 128 letters"),
        ({"consumer_name": "a" * 129}, "1 to 128 letters"),
        ({"consumer_arn": ARN}, "must be the ARN of a consumer"),
        ({"consumer_arn": CONSUMER, "consumer_name": "c"}, "consumer_name is for"),
        ({"consumer_arn": CONSUMER, "deregister": True}, "deregister is for"),
        ({"consumer_arn": CONSUMER, "fall_back_to_polling": True}, "fall_back_to_polling is for"),
    ],
)
def test_options_of_fan_out_are_checked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        FanOutOptions(**options)


def test_the_consumer_of_an_application_is_checked() -> None:
    def make(name: str = "app", stream: str = "flights", **options: Any) -> Application:
        fan_out = FanOutOptions(**options)
        return Application(
            name, stream, Processor, options=WorkerOptions(retrieval="efo", fan_out=fan_out)
        )

    with pytest.raises(OptionError, match="give FanOutOptions a consumer_name"):
        make(name="a" * 200)
    with pytest.raises(OptionError, match="application reads 'cars'"):
        make(stream="cars", consumer_arn=CONSUMER)
    make(name="a" * 200, consumer_name="c")
    make(name="a" * 200, consumer_arn=CONSUMER)
    made = make(stream=ARN, consumer_arn=CONSUMER)
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    "name",
    [
        "failover_time",
        "handoff_timeout",
        "idle_time",
        "parent_poll_interval",
        "task_backoff",
        "audit_interval",
        "cleanup_interval",
        "shutdown_timeout",
    ],
)
def test_a_wait_in_milliseconds_is_refused_with_the_likely_meaning(name: str) -> None:
    given: dict[str, Any] = {name: 10_000}
    with pytest.raises(OptionError) as caught:
        WorkerOptions(**given)
    assert str(caught.value) == (
        f"{name} is 10000 seconds, which is 2.8 hours; it must be at most 3,600, one hour. The "
        "KCL's options are in milliseconds, these are in seconds: did you mean 10?"
    )
    assert getattr(WorkerOptions(**{**given, name: 3_600}), name) == 3_600


@pytest.mark.parametrize("text", ["latest", "LATEST", "Trim_Horizon", "TRIM_HORIZON"])
def test_the_names_of_initial_positions_are_not_case_sensitive(text: Any) -> None:
    initial = Application("app", "s", Processor, initial_position=text).initial()
    assert str(initial) == text.upper()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"initial_position": "newest"}, "initial_position"),
        ({"initial_position": datetime(2026, 1, 1)}, "time zone"),
        ({"name": ""}, "name"),
        ({"stream": ""}, "stream"),
        ({"stream": "arn:aws:sqs:eu-west-1:1:q"}, "ARN"),
        ({"on_error": "retry"}, r"on_error is 'retry'; it must be Retry\(\), Skip\(\)"),
        ({"on_error": Skip}, "on_error is"),
        ({"worker_id": ""}, "worker_id"),
    ],
)
def test_an_application_that_cannot_run_is_refused(changed: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"name": "app", "stream": "s", "processor": Processor, **changed}
    with pytest.raises(OptionError, match=why):
        Application(**given)


@pytest.mark.parametrize(
    ("processor", "why"),
    [
        (WithoutProcessRecords, "process_records"),
        (NotDerived, "no initialize"),
        (Processor(), "instance"),
        (5, "cannot be called"),
        ("name", "is 'package.module:name'"),
    ],
)
def test_what_is_no_record_processor_is_refused(processor: Any, why: str) -> None:
    with pytest.raises(ProcessorError, match=why):
        Application("app", "s", processor)


SECRET_URL = "https://vpce.example.com/x?token=hunter2"


def test_the_texts_of_an_application_and_of_its_parts_hold_no_secret_of_a_url() -> None:
    made = Application(
        "app",
        processor=Processor,
        region="eu-west-1",
        endpoint=SECRET_URL,
        dynamodb_endpoint=SECRET_URL,
        credentials=CredentialSource(sts_endpoint=SECRET_URL),
        streams=[StreamConfig("flights", endpoint=SECRET_URL)],
        on_error=DeadLetter(DeadLetterStream("failed", "eu-west-1", SECRET_URL)),
    )
    (plan,) = made.plans()
    for part in (made, made.streams, made.on_error, made.credentials, plan, plan.address):
        assert "hunter2" not in repr(part)
    assert repr(made).startswith("Application(name='app', stream=None, processor=<class ")
    assert "region='eu-west-1', endpoint='https://vpce.example.com/x', dyn" in repr(made)
    assert pickle.loads(pickle.dumps(made)).endpoint == SECRET_URL


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint": "https://me:hunter2@kinesis.example.com"},
        {"dynamodb_endpoint": "https://me:hunter2@kinesis.example.com"},
        {"credentials": CredentialSource(sts_endpoint="https://me:hunter2@sts.example.com")},
    ],
    ids=lambda given: next(iter(given)),
)
def test_credentials_in_a_url_are_refused_and_not_shown(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="endpoint may not hold credentials") as caught:
        Application("app", "flights", Processor, region="eu-west-1", **given)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(given.get("credentials"))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: WorkerOptions(
                failover_time="10",  # type: ignore[arg-type]
                idle_time=5_000,
                max_records=0,
                balance="even",  # type: ignore[arg-type]
                fan_out=FanOutOptions("board"),
                give_up_after_limit=True,
                http="nowhere",
            ),
            (
                "failover_time is '10'; it must be a number of seconds",
                "idle_time is 5000 seconds, which is 1.4 hours",
                "max_records is 0; it must be a number of at least 1",
                "balance is 'even'",
                "fan_out works only with retrieval='efo'",
                "give_up_after_limit needs a processing_time_limit",
                "http is 'nowhere'",
            ),
        ),
        (
            lambda: LeaseTableOptions("FREE", read_capacity=0, tags=("a",)),  # type: ignore[arg-type]
            ("billing_mode is 'FREE'", "read_capacity is 0", "tags must be a tuple"),
        ),
        (
            lambda: FanOutOptions("a b", "arn:x", deregister=1),  # type: ignore[arg-type]
            ("deregister is 1", "consumer_name is 'a b'", "consumer_arn is 'arn:x'"),
        ),
        (
            lambda: Application(
                "a/b",
                "fli ghts",
                json,  # type: ignore[arg-type]
                initial_position="yesterday",  # type: ignore[arg-type]
                dynamodb_endpoint="x",
                worker_id="\n",
                former_streams=FormerStreams(delete_after=5),
            ),
            (
                "initial_position is 'yesterday'",
                "The processor is <module",
                "stream is 'fli ghts'",
                "former_streams works only with streams",
                "dynamodb_endpoint is 'x'",
                "name is 'a/b'",
                "worker_id is",
            ),
        ),
    ],
)
def test_all_that_is_wrong_is_told_at_once(make: Callable[[], object], told: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        make()
    first, *errors = str(caught.value).split("\n- ")
    assert first == f"The options have {len(told)} errors:"
    for error, text in zip(errors, told, strict=True):
        assert error.startswith(text)


def test_a_processor_that_alone_is_wrong_keeps_its_error() -> None:
    with pytest.raises(ProcessorError):
        Application("app", "flights", json)  # type: ignore[arg-type]
