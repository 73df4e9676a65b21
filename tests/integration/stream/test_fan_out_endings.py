"""How subscriptions end, and how a fan-out cursor goes on; the service says what a test wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerNotFoundError,
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
    SparkinesisError,
    StreamNotFoundError,
)
from sparkinesis.local.wire.push import message
from sparkinesis.metrics.catalogue import (
    CALL_DURATION,
    CALL_RETRIES,
    RECORDS_FETCHED,
    SUBSCRIPTIONS_ENDED,
)
from sparkinesis.metrics.tally import Tally
from sparkinesis.source.reading.subscribed_cursor import (
    RangeSubscription,
    SubscribedCursor,
    SubscribeLimiter,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.fan_out import current_subscription
from sparkinesis.stream.fan_out.current_subscription import SILENCE, socket_watch
from sparkinesis.stream.fan_out.cursor import RETRY
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    ShardRange,
)
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.early_records import OutOfOrderError
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.event_stream import INITIAL_RESPONSE, event, exception, records_event
from tests.fetching import FetchingCursor
from tests.integration.stream.conftest import CONSUMER_ARN, SHARD, STREAM_ARN
from tests.scripted import DATE_MS, Answer, Script, answer, refusal
from tests.tallies import counted


class Turned:
    """A clock in seconds that goes on while somebody waits; what was waited for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def wait(self, _: threading.Event, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Turned:
    return Turned()


@pytest.fixture
def tally() -> Tally:
    return Tally()


@pytest.fixture
def client(script: Script, tally: Tally) -> StreamClient:
    address = StreamAddress("s", STREAM_ARN, "us-east-1", script.endpoint)
    return StreamClient(address, Backoff(give_up_after=0), metrics=tally)


Subscribe = Callable[..., FetchingCursor]


@pytest.fixture
def subscribe(script: Script, client: StreamClient, clock: Turned) -> Iterator[Subscribe]:
    """Cursors whose subscriptions get these answers. The jitter is as large as it may be."""
    opened: list[FetchingCursor] = []

    def open_one(
        *answers: Answer,
        position: Position = TRIM_HORIZON,
        jitter: float = 1.0,
        give_up_after: float = RETRY.give_up_after,
        **options: Any,
    ) -> FetchingCursor:
        script.on("SubscribeToShard", *answers)
        retry = replace(
            RETRY,
            clock=clock,
            sleep=clock.sleep,
            uniform=lambda least, most: least + jitter * (most - least),
            give_up_after=give_up_after,
        )
        options |= {"retry": retry, "wait": clock.wait}
        opened.append(FetchingCursor(client, CONSUMER_ARN, SHARD, position, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.stop()


def begun(*events: bytes, ends: str = "end") -> Answer:
    """A subscription with these events."""
    return Answer([INITIAL_RESPONSE, *events], ends)


def held(*events: bytes) -> Answer:
    return begun(*events, ends="hold")


def numbers(cursor: FetchingCursor) -> list[int]:
    fetched = cursor.fetch()
    assert fetched is not None
    return [int(record.data) for record in fetched.page.records]


def numbers_of(cursor: FetchingCursor) -> list[str]:
    """The sequence numbers, where a record has no data."""
    fetched = cursor.fetch()
    assert fetched is not None
    return [record.sequence_number for record in fetched.page.records]


def starts(script: Script) -> list[object]:
    return [call["StartingPosition"] for call in script.of("SubscribeToShard")]


def after(number: int) -> dict[str, str]:
    return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": str(number)}


AT_5 = {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "5"}


@pytest.mark.parametrize("ends", ["reset", "close", "end"])
def test_an_interruption_goes_on_behind_the_last_event(
    subscribe: Subscribe, script: Script, clock: Turned, ends: str
) -> None:
    fan_out = subscribe(
        begun(records_event([1, 2], 2), records_event([], 7), ends=ends),
        held(records_event([8], 8)),
    )
    assert [numbers(fan_out) for _ in range(3)] == [[1, 2], [], [8]]
    assert starts(script)[1:] == [after(7)]
    assert clock.waits == [5.5]  # the rest of five seconds, and the first backoff


def test_it_goes_on_behind_the_number_that_the_event_says(
    subscribe: Subscribe, script: Script
) -> None:
    fan_out = subscribe(begun(records_event([1, 2], 5)), held(records_event([8], 8)))
    assert [numbers(fan_out), numbers(fan_out)] == [[1, 2], [8]]
    assert starts(script)[1:] == [after(5)]


@pytest.mark.parametrize(
    ("position", "inclusive", "start"),
    [
        (TRIM_HORIZON, False, {"Type": "TRIM_HORIZON"}),
        (
            AtTimestamp(1_790_000_000_123),
            False,
            {"Type": "AT_TIMESTAMP", "Timestamp": 1790000000.123},
        ),
        (AfterRecord("5"), False, after(5)),
        (AfterRecord("5"), True, AT_5),
        # Inside of an aggregate: that record again.
        (AfterRecord("5", None, 3), False, AT_5),
    ],
)
def test_where_it_begins(
    subscribe: Subscribe,
    script: Script,
    position: Position,
    inclusive: bool,
    start: dict[str, object],
) -> None:
    options = {"inclusive": True} if inclusive else {}
    answers = [begun(records_event([6], 6)), held(records_event([7], 7))]
    fan_out = subscribe(*answers, position=position, **options)
    assert not fan_out.at_end
    assert [numbers(fan_out), numbers(fan_out)] == [[6], [7]]
    sent, again = script.of("SubscribeToShard")
    assert (sent["ConsumerARN"], sent["ShardId"]) == (CONSUMER_ARN, SHARD)
    assert sent["StartingPosition"] == start
    assert again["StartingPosition"] == after(6), "whatever the first one began with"


@pytest.mark.parametrize("inclusive", [False, True])
def test_records_of_a_server_that_begins_too_early_are_not_repeated(
    subscribe: Subscribe, *, inclusive: bool
) -> None:
    early = held(records_event([4, 5, 6], 6))
    fan_out = subscribe(early, position=AfterRecord("5"), inclusive=inclusive)
    assert numbers(fan_out) == ([5, 6] if inclusive else [6])


def test_an_event_says_what_a_page_says(subscribe: Subscribe, tally: Tally) -> None:
    said = {"Records": [], "MillisBehindLatest": 12, "ContinuationSequenceNumber": "7"}
    fan_out = subscribe(held(event(said), records_event([8, 9], 9)))
    fetched = fan_out.fetch()
    assert fetched is not None
    page = fetched.page
    assert (page.millis_behind_latest, page.next_shard_iterator) == (12, None)
    assert numbers(fan_out) == [8, 9]
    assert counted(tally, RECORDS_FETCHED) == {("s",): 2}


@pytest.mark.parametrize("position", [LATEST, SHARD_END, FromApplication("app")])
def test_where_it_cannot_begin(subscribe: Subscribe, position: Position) -> None:
    with pytest.raises(ValueError, match="cannot start at"):
        subscribe(position=position)


def test_the_end_of_the_shard(subscribe: Subscribe, script: Script, tally: Tally) -> None:
    fan_out = subscribe(held(records_event([1], None, ["shardId-1", "shardId-2"])))
    fetched = fan_out.fetch()
    assert fetched is not None
    assert fan_out.at_end
    children = [child.shard_id for child in fetched.page.child_shards or ()]
    assert children == ["shardId-1", "shardId-2"]
    assert [record.data for record in fetched.page.records] == [b"1"]
    # Nobody will ask for more, so the connection is closed without being asked to.
    assert script.gone.acquire(timeout=10)
    fan_out.stop()
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", "shard ended"): 1}


IN_USE = "ResourceInUseException"
PASSING = (
    "InternalFailureException",
    "LimitExceededException",
    "KMSThrottlingException",
    "ThrottlingException",
    "ServiceUnavailableException",
)


@pytest.mark.parametrize(
    ("answers", "pages", "waits"),
    [
        ([*[refusal(IN_USE)] * 4, held(records_event([1], 1))], [[1]], [1.5] * 4),
        (
            [begun(records_event([1], 1), exception(IN_USE)), held(records_event([2], 2))],
            [[1], [2]],
            [20.5],
        ),
        (
            [begun(records_event([1, 2], 2)), held(records_event([1, 2, 3], 3))],
            [[1, 2], [3]],
            [5.5],
        ),
        (
            [held(event({"Anything": 1}, name="SomethingNewEvent"), records_event([1], 1))],
            [[1]],
            [],
        ),
        *(
            (
                [
                    begun(records_event([1], 1), exception(code)),
                    refusal(code),
                    refusal(code),
                    held(records_event([2], 2)),
                ],
                [[1], [2]],
                [5.5, 1.0, 2.0],
            )
            for code in PASSING
        ),
        # An event every time is no reason to give up.
        ([begun(records_event([n], n)) for n in range(100)], [[n] for n in range(100)], [5.5] * 99),
    ],
    ids=[
        *("in use for a moment", "taken over", "begins anew", "an event of another kind"),
        *PASSING,
        "an event every time",
    ],
)
def test_it_goes_on_and_repeats_nothing(
    subscribe: Subscribe,
    clock: Turned,
    answers: list[Answer],
    pages: list[list[int]],
    waits: list[float],
) -> None:
    fan_out = subscribe(*answers)
    assert [numbers(fan_out) for _ in pages] == pages
    assert clock.waits == waits


DESCRIBED = {
    "StreamDescriptionSummary": {
        "StreamName": "s",
        "StreamARN": STREAM_ARN,
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 24,
        "StreamCreationTimestamp": 1.79e9,
        "EnhancedMonitoring": [],
        "OpenShardCount": 1,
    }
}


def described_consumer(status: str) -> dict[str, object]:
    return {
        "ConsumerDescription": {
            "ConsumerName": "c",
            "ConsumerARN": CONSUMER_ARN,
            "ConsumerStatus": status,
            "ConsumerCreationTimestamp": 1.79e9,
            "StreamARN": STREAM_ARN,
        }
    }


@pytest.mark.parametrize("is_event", [False, True])
@pytest.mark.parametrize(
    ("code", "raised", "says"),
    [
        ("AccessDeniedException", AccessDeniedError, "kinesis:SubscribeToShard"),
        ("KMSAccessDeniedException", AccessDeniedError, "KMSAccessDeniedException"),
        ("KMSDisabledException", ServiceError, "A retry would not help"),
        ("KMSInvalidStateException", ServiceError, "A retry would not help"),
        ("KMSNotFoundException", ServiceError, "A retry would not help"),
        ("KMSOptInRequired", ServiceError, "A retry would not help"),
        ("ValidationException", ServiceError, "A retry would not help"),
        ("SomethingNewException", ServiceError, "A retry would not help"),
    ],
)
def test_what_will_not_pass_is_raised(
    subscribe: Subscribe,
    tally: Tally,
    clock: Turned,
    *,
    code: str,
    raised: type[SparkinesisError],
    says: str,
    is_event: bool,
) -> None:
    refused = begun(exception(code)) if is_event else refusal(code)
    fan_out = subscribe(refused, position=AfterRecord("5"))
    with pytest.raises(raised) as told:
        fan_out.fetch()
    assert type(told.value) is raised
    text = str(told.value)
    for part in (says, SHARD, "stream 's'", "position 5", f"{code}: Said so."):
        assert part in text
    assert clock.waits == []
    fan_out.stop()
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", "failed" if is_event else "refused"): 1}
    assert counted(tally, CALL_RETRIES) == {}


UNKNOWN = "InvalidArgumentException"


@pytest.mark.parametrize("is_event", [False, True])
def test_a_position_that_is_refused_twice_is_unknown(
    subscribe: Subscribe, tally: Tally, clock: Turned, *, is_event: bool
) -> None:
    refused = begun(exception(UNKNOWN)) if is_event else refusal(UNKNOWN)
    fan_out = subscribe(refused, refused, position=AfterRecord("5"))
    with pytest.raises(PositionNotFoundError, match=f"position 5.*twice.*{UNKNOWN}: Said so"):
        fan_out.fetch()
    assert clock.waits == [5.5 if is_event else 0.5]
    assert counted(tally, CALL_RETRIES) == (
        {} if is_event else {("s", "SubscribeToShard", "doubted"): 1}
    )


def test_a_position_that_is_refused_once_is_asked_for_again(
    subscribe: Subscribe, script: Script, clock: Turned
) -> None:
    refused, broken = refusal(UNKNOWN), refusal("InternalFailureException")
    fan_out = subscribe(
        refused,
        broken,
        begun(records_event([6], 6)),
        refused,
        held(records_event([7], 7)),
        position=AfterRecord("5"),
    )
    assert [numbers(fan_out) for _ in range(2)] == [[6], [7]]
    assert starts(script) == [after(5)] * 3 + [after(6)] * 2
    assert clock.waits[0] == 0.5


@pytest.mark.parametrize("position", [TRIM_HORIZON, AtTimestamp(1_790_000_000_123)])
def test_an_argument_that_is_no_record_is_not_asked_for_again(
    subscribe: Subscribe, clock: Turned, position: Position
) -> None:
    with pytest.raises(ServiceError, match=UNKNOWN):
        subscribe(refusal(UNKNOWN), position=position).fetch()
    assert clock.waits == []


@pytest.mark.parametrize("is_event", [False, True])
@pytest.mark.parametrize(
    ("stream", "consumer", "raised", "says"),
    [
        (answer(DESCRIBED), answer(described_consumer("ACTIVE")), ShardNotFoundError, "retention"),
        (
            answer(DESCRIBED),
            refusal("ResourceNotFoundException"),
            ConsumerNotFoundError,
            "is not registered",
        ),
        (
            answer(DESCRIBED),
            answer(described_consumer("DELETING")),
            ConsumerNotFoundError,
            "is DELETING",
        ),
        (
            refusal("ResourceNotFoundException"),
            refusal("ResourceNotFoundException"),
            StreamNotFoundError,
            "There is no stream 's'",
        ),
    ],
)
def test_what_is_not_found(
    subscribe: Subscribe,
    script: Script,
    *,
    stream: Answer,
    consumer: Answer,
    raised: type[SparkinesisError],
    says: str,
    is_event: bool,
) -> None:
    code = "ResourceNotFoundException"
    refused = begun(exception(code)) if is_event else refusal(code)
    script.on("DescribeStreamSummary", stream)
    script.on("DescribeStreamConsumer", consumer)
    with pytest.raises(raised, match=says) as told:
        subscribe(refused).fetch()
    assert type(told.value) is raised
    assert "stream 's'" in str(told.value)


def test_cursors_may_share_what_they_know_of_the_consumer(subscribe: Subscribe) -> None:
    asked: list[str] = []
    gone = refusal("ResourceNotFoundException")
    with pytest.raises(ConsumerNotFoundError, match="is not registered"):
        subscribe(gone, find_consumer=asked.append).fetch()
    assert asked == [CONSUMER_ARN]


BROKEN = bytearray(records_event([2], 2))
BROKEN[-6] ^= 1


@pytest.mark.parametrize(
    "chunk",
    [
        bytes(BROKEN),
        b"<html>Bad gateway</html>",
        event({"Records": [{"Data": "?"}]}),
        message({":message-type": "unheard-of"}, b"{}"),
        message({}, b""),
    ],
)
def test_what_is_no_event_is_asked_for_again(
    subscribe: Subscribe, script: Script, chunk: bytes
) -> None:
    fan_out = subscribe(
        held(records_event([1], 1), chunk, records_event([3], 3)), held(records_event([2, 3], 3))
    )
    assert [numbers(fan_out), numbers(fan_out)] == [[1], [2, 3]]
    assert starts(script)[1:] == [after(1)]
    assert script.gone.acquire(timeout=10)  # the broken one was closed, not kept


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (refusal("LimitExceededException"), "Every retry was used up"),
        (refusal("ResourceInUseException"), "its own consumer"),
        (Answer([b"<html>"], status=502), "Every retry was used up"),
        (begun(b"<html></html>"), "checksum .*; expected"),
        (begun(b"\x00"), "in the middle of an event"),
        # The service ends subscriptions that way, but not at once: that is no busy loop, either.
        (begun(), "each subscription ended"),
    ],
)
def test_five_minutes_without_an_event_are_too_many(
    subscribe: Subscribe, clock: Turned, given: Answer, says: str
) -> None:
    fan_out = subscribe(*[given] * 100)
    with pytest.raises(ServiceError, match=says) as told:
        fan_out.fetch()
    assert SHARD in str(told.value)
    assert "stream 's'" in str(told.value)
    assert 250 < sum(clock.waits) <= 300
    assert len(clock.waits) < 30


@pytest.mark.parametrize(
    ("jitter", "age", "is_renewed"),
    [(0.0, 239.25, False), (0.0, 240, True), (1.0, 289.25, False), (1.0, 290, True)],
)
def test_a_subscription_is_renewed_before_its_time_is_over(
    subscribe: Subscribe,
    script: Script,
    tally: Tally,
    clock: Turned,
    *,
    jitter: float,
    age: float,
    is_renewed: bool,
) -> None:
    """The service ends it after 300 seconds; not all shards are to be renewed at once."""
    first = held(records_event([1], 1), records_event([2], 2))
    second = held(records_event([2], 2))
    fan_out = subscribe(first, second, jitter=jitter)
    assert numbers(fan_out) == [1]
    clock.now += age
    fetched = fan_out.fetch()
    assert fetched is not None
    assert fetched.service_time_ms == DATE_MS + (0 if is_renewed else int(age * 1000))
    assert len(starts(script)) == (2 if is_renewed else 1)
    assert counted(tally, SUBSCRIPTIONS_ENDED) == ({("s", "expired"): 1} if is_renewed else {})
    assert clock.waits == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (begun(records_event([1], 1), exception("InternalFailureException")), "(Internal"),
        (begun(records_event([1], 1), b"<html></html>"), "(The prelude of an event"),
        (begun(records_event([1], 1)), "ended."),
    ],
)
def test_whoever_waits_for_the_next_subscription_says_why(
    subscribe: Subscribe, caplog: pytest.LogCaptureFixture, given: Answer, says: str
) -> None:
    caplog.set_level("INFO")
    fan_out = subscribe(given, held(records_event([2], 2)))
    assert [numbers(fan_out), numbers(fan_out)] == [[1], [2]]
    assert f"Subscribing to shard {SHARD} of stream 's'" in caplog.text
    assert says in caplog.text


def test_a_renewal_that_is_refused_is_tried_again_soon(
    subscribe: Subscribe, tally: Tally, clock: Turned
) -> None:
    """Nobody has taken the shard over: the old subscription was ended here."""
    first, second = held(records_event([1], 1)), held(records_event([2], 2))
    fan_out = subscribe(first, refusal(IN_USE), second)
    assert numbers(fan_out) == [1]
    clock.now += 290.0
    assert numbers(fan_out) == [2]
    assert clock.waits == [1.5]
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", "expired"): 1, ("s", "refused"): 1}


def test_so_long_as_it_may_try_it_does(subscribe: Subscribe, clock: Turned) -> None:
    fan_out = subscribe(*[refusal(IN_USE)] * 9, give_up_after=3.0)
    with pytest.raises(ServiceError):
        fan_out.fetch()
    assert clock.waits == [1.5, 1.5], "the last one at the very end"


def test_a_stop_ends_a_waiting_fetch_and_the_connection(
    subscribe: Subscribe, script: Script, tally: Tally
) -> None:
    fan_out = subscribe(held(records_event([1], 1)))
    assert numbers(fan_out) == [1]
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(fan_out.fetch()))
    reader.start()
    fan_out.stop()
    reader.join(timeout=10)  # far below the 30 seconds after which a silent connection is given up
    assert answers == [None]
    assert script.gone.acquire(timeout=10)
    assert fan_out.fetch() is None
    fan_out.stop()
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", "closed"): 1}
    assert len(script.calls) == 1


@pytest.mark.parametrize(
    ("given", "ending"),
    [(refusal("AccessDeniedException"), "refused"), (held(records_event([1], 1)), "closed")],
)
def test_a_stop_during_the_call_closes_what_it_opens_and_has_no_failure(
    subscribe: Subscribe, script: Script, tally: Tally, given: Answer, ending: str
) -> None:
    script.gate.clear()
    fan_out = subscribe(given)
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(fan_out.fetch()))
    reader.start()
    assert script.called.acquire(timeout=60)
    fan_out.stop()
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {}
    script.gate.set()
    reader.join(timeout=60)
    assert answers == [None]
    assert ending == "refused" or script.gone.acquire(timeout=60)
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", ending): 1}


def test_each_end_is_counted_by_its_reason_and_only_refusals_are_retries(
    subscribe: Subscribe, tally: Tally
) -> None:
    fan_out = subscribe(
        refusal("LimitExceededException"),
        refusal("InternalFailureException"),
        begun(records_event([1], 1), exception("InternalFailureException")),
        begun(records_event([2], 2), b"<html></html>"),
        begun(records_event([3], 3), exception(IN_USE)),
        refusal(IN_USE),
        begun(records_event([4], 4)),
        held(records_event([5], 5)),
    )
    assert [numbers(fan_out) for _ in range(5)] == [[1], [2], [3], [4], [5]]
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {
        ("s", "refused"): 3,
        ("s", "broken"): 2,
        ("s", "taken over"): 1,
        ("s", "expired"): 1,
    }
    failed = {
        ("s", "SubscribeToShard", "throttled"): 1,
        ("s", "SubscribeToShard", "retryable"): 2,
    }
    assert counted(tally, CALL_RETRIES) == failed
    assert counted(tally, CALL_DURATION) == {**failed, ("s", "SubscribeToShard", "ok"): 5}


def last_page(*numbers: int, **more: str) -> Answer:
    records = [
        {"Data": "", "PartitionKey": "k", "SequenceNumber": str(number)} for number in numbers
    ]
    return answer({"Records": records, "MillisBehindLatest": 0, **more})


CLOSED = answer(
    {
        "Shards": [
            {
                "ShardId": SHARD,
                "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
                "SequenceNumberRange": {"StartingSequenceNumber": "0", "EndingSequenceNumber": "3"},
            }
        ]
    }
)


@pytest.mark.parametrize(
    "last", [[1, 2], []], ids=["from before the position", "empty, and of long ago"]
)
def test_an_empty_page_does_not_hide_the_end_of_the_shard(
    subscribe: Subscribe, script: Script, clock: Turned, last: list[int]
) -> None:
    """The server begins earlier than asked, and the first pages from there on are empty."""
    fan_out = subscribe(begun(records_event([1, 2], 2)), begun(records_event([1, 2], None)))
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    empty = {"Records": [], "MillisBehindLatest": 5000, "NextShardIterator": "more"}
    end = last_page(1, 2) if last else answer({"Records": [], "MillisBehindLatest": 5000})
    script.on("GetRecords", answer(empty), answer(empty), end)
    script.on("ListShards", CLOSED)
    assert numbers(fan_out) == [1, 2]
    assert numbers(fan_out) == []
    assert fan_out.at_end
    assert len(script.of("SubscribeToShard")) == 2
    assert clock.slept == [0.5, 0.5], "a shard accepts five calls a second"


def test_the_end_is_looked_for_where_the_subscription_began(
    subscribe: Subscribe, script: Script
) -> None:
    """No event has moved the position: the record that it names is not read yet."""
    position = AfterRecord("5")
    fan_out = subscribe(begun(records_event([], None)), position=position, inclusive=True)
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    script.on("GetRecords", last_page(5))
    script.on("ListShards", CLOSED)
    assert numbers_of(fan_out) == ["5"]
    assert fan_out.at_end
    (asked,) = script.of("GetShardIterator")
    assert asked["ShardIteratorType"] == "AT_SEQUENCE_NUMBER"


def test_a_stop_ends_the_look_for_the_shards_end(
    subscribe: Subscribe, script: Script, clock: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[Callable[[], None]] = []
    monkeypatch.setattr(clock, "sleep", lambda _: stops.pop()())
    fan_out = subscribe(begun(records_event([1], None)))
    stops.append(fan_out.stop)
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    empty = answer({"Records": [], "MillisBehindLatest": 5000, "NextShardIterator": "more"})
    script.on("GetRecords", *[empty] * 9)
    assert numbers(fan_out) == [1]
    assert fan_out.fetch() is None
    assert len(script.of("GetRecords")) == 2


def test_a_shard_whose_pages_stay_empty_goes_on(
    subscribe: Subscribe, script: Script, clock: Turned
) -> None:
    fan_out = subscribe(begun(records_event([1, 3], None)), held(records_event([4], 4)))
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    empty = answer({"Records": [], "MillisBehindLatest": 5000, "NextShardIterator": "more"})
    script.on("GetRecords", *[empty] * 10, last_page(4))
    assert [numbers(fan_out), numbers(fan_out)] == [[1, 3], [4]]
    assert not fan_out.at_end
    assert starts(script)[1:] == [after(3)], "behind the last record, without a number of the event"
    assert len(script.of("GetRecords")) == 10
    assert clock.slept == [0.5] * 10


def test_a_shard_at_its_tip_is_asked_once(subscribe: Subscribe, script: Script) -> None:
    fan_out = subscribe(begun(records_event([1], None)), held(records_event([2], 2)))
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    script.on("GetRecords", last_page(NextShardIterator="more"))
    assert [numbers(fan_out), numbers(fan_out)] == [[1], [2]]
    assert len(script.of("GetRecords")) == 1
    (asked,) = script.of("GetShardIterator")
    assert asked["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"


def test_pages_from_before_the_position_say_nothing_of_the_tip(
    subscribe: Subscribe, script: Script
) -> None:
    fan_out = subscribe(begun(records_event([1, 2], None)))
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    script.on("GetRecords", last_page(1, 2, NextShardIterator="more"), last_page(2))
    script.on("ListShards", CLOSED)
    assert [numbers(fan_out), numbers(fan_out)] == [[1, 2], []]
    assert fan_out.at_end


def test_a_shard_whose_end_may_not_be_looked_for_goes_on(
    subscribe: Subscribe, script: Script
) -> None:
    fan_out = subscribe(begun(records_event([1], None)), held(records_event([2], 2)))
    script.on("GetShardIterator", refusal("AccessDeniedException"))
    assert [numbers(fan_out), numbers(fan_out)] == [[1], [2]]


def test_the_shards_last_records_may_come_after_its_last_event(
    subscribe: Subscribe, script: Script
) -> None:
    """The event said nothing of more, and the subscription ended behind it."""
    fan_out = subscribe(begun(records_event([1], None)))
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    last = {"Data": "Mg==", "PartitionKey": "k", "SequenceNumber": "2"}
    script.on("GetRecords", answer({"Records": [last], "MillisBehindLatest": 0}))
    script.on("ListShards", CLOSED)
    assert numbers(fan_out) == [1]
    assert not fan_out.at_end
    assert numbers(fan_out) == [2]
    assert fan_out.at_end


def test_a_cursor_tells_when_to_go_on_and_wakes_its_reader(
    subscribe: Subscribe, clock: Turned
) -> None:
    go_on, woken = threading.Event(), threading.Event()

    def late() -> Iterator[bytes]:
        yield from (INITIAL_RESPONSE, records_event([1], 1))
        go_on.wait()
        yield records_event([2], 2)

    fan_out = subscribe(refusal(IN_USE), Answer(cast(Any, late())))
    assert fan_out.due_in(woken.set) == 0.0
    assert fan_out.step() is None
    assert fan_out.due_in(woken.set) == 1.5, "until it may subscribe again"
    clock.now += 2.0
    assert fan_out.due_in(woken.set) == 0.0
    assert numbers(fan_out) == [1]
    clock.now += 1.0
    assert fan_out.due_in(woken.set) == SILENCE
    clock.now += 1.0
    assert fan_out.due_in(woken.set) == SILENCE - 1.0
    assert not woken.is_set()
    go_on.set()
    assert woken.wait(10)
    assert fan_out.due_in(woken.set) == 0.0
    assert numbers(fan_out) == [2]
    assert fan_out.step() is None, "the subscription has ended"


def test_a_connection_that_is_silent_for_too_long_is_broken(
    subscribe: Subscribe, tally: Tally, clock: Turned
) -> None:
    """The service sends an event every few seconds; half a minute is too long."""
    fan_out = subscribe(held(records_event([1], 1)), held(), held(records_event([2], 2)))
    assert numbers(fan_out) == [1]
    for _ in range(2):
        clock.now += 100.0
        assert fan_out.due_in(_nobody) == 30.0, "since it is looked at, and not since the event"
        clock.now += 30.0
        assert fan_out.due_in(_nobody) == 0.0
        assert fan_out.step() is None
        clock.now += 10.0
        assert fan_out.due_in(_nobody) == 0.0
        assert fan_out.step() is None, "it subscribes again"
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", "broken"): 2}
    assert numbers(fan_out) == [2]


def _nobody() -> None:
    """Is woken."""


def test_silence_begins_anew_with_each_event_and_the_renewal_is_due_in_any_case(
    subscribe: Subscribe, clock: Turned
) -> None:
    go_on = threading.Semaphore(0)

    def late() -> Iterator[bytes]:
        yield INITIAL_RESPONSE
        for number in (1, 2, 3):
            yield records_event([number], number)
            go_on.acquire()

    fan_out = subscribe(Answer(cast(Any, late())))
    woken = threading.Semaphore(0)
    assert numbers(fan_out) == [1]
    assert fan_out.due_in(woken.release) == SILENCE
    clock.now += 20.0
    assert fan_out.due_in(woken.release) == 10.0
    go_on.release()
    assert woken.acquire(timeout=60)
    assert numbers(fan_out) == [2]
    clock.now += 15.0
    assert fan_out.due_in(woken.release) == SILENCE
    clock.now += 15.0
    go_on.release()
    assert woken.acquire(timeout=60)
    clock.now += 225.0
    assert numbers(fan_out) == [3], "the reader was away, and not the service"
    assert fan_out.due_in(woken.release) == 15.0, "290 seconds after the first event"
    fan_out.stop()
    go_on.release()


def test_an_event_that_came_along_with_another_is_due_at_once(subscribe: Subscribe) -> None:
    fan_out = subscribe(held(records_event([1], 1) + records_event([2], 2)))
    assert numbers(fan_out) == [1]
    assert fan_out.due_in(_nobody) == 0.0
    assert numbers(fan_out) == [2]
    assert fan_out.due_in(_nobody) == SILENCE


def test_a_socket_is_watched_no_longer_once_its_subscription_ends(
    subscribe: Subscribe, clock: Turned
) -> None:
    """Its number may be that of the next one, whose reader would not be woken."""
    fan_out = subscribe(*[held(records_event([number], number)) for number in (1, 2)])
    for number in (1, 2):
        assert numbers(fan_out) == [number]
        assert fan_out.due_in(_nobody) == SILENCE
        watched = fan_out._current._watched
        assert watched in socket_watch()._selector.get_map()
        if number == 1:
            clock.now += 290.0
            fan_out.step()
        else:
            fan_out.stop()
        assert fan_out._current._watched is None
        assert watched not in socket_watch()._selector.get_map()


def test_a_reader_is_woken_up_to_the_renewal(subscribe: Subscribe, clock: Turned) -> None:
    fan_out = subscribe(held(records_event([1], 1)))
    assert numbers(fan_out) == [1]
    clock.now += 289.5
    assert fan_out.due_in(_nobody) == 0.5
    assert fan_out._current._watched is not None


def test_a_stop_while_a_reader_looks_leaves_nothing_that_is_watched(
    subscribe: Subscribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    fan_out = subscribe(held(records_event([1], 1)))
    assert numbers(fan_out) == [1]
    monkeypatch.setattr(current_subscription, "_has_data", lambda _: fan_out.stop())
    fan_out.due_in(_nobody)
    assert fan_out._current._watched is None
    monkeypatch.undo()
    assert fan_out.due_in(_nobody) == 0.0, "the reader is told"
    assert fan_out.step() is None


def test_an_event_without_a_number_ends_no_shard_that_goes_on(
    subscribe: Subscribe, script: Script
) -> None:
    """A server may leave out the number always."""
    fan_out = subscribe(held(records_event([], None), records_event([7], None)))
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    script.on("GetRecords", last_page(7, NextShardIterator="more"))
    assert numbers(fan_out) == []
    assert not fan_out.at_end
    assert numbers(fan_out) == [7]


def subscribes(client: StreamClient, wanted: ShardRange) -> Callable[[Position], SubscribedCursor]:
    """The cursors of a task."""
    assert isinstance(wanted.end, AfterRecord) or wanted.end is SHARD_END
    budget = ShardBudget(Pace(0, 0))
    return lambda position: SubscribedCursor(
        RangeSubscription(client, SubscribeLimiter(None), CONSUMER_ARN, SHARD),
        position,
        end=wanted.end,
        poll=lambda at, inclusive: ShardCursor(client, budget, SHARD, at, inclusive=inclusive),
    )


def test_a_task_whose_events_change_places_fails_and_is_run_again(
    script: Script, client: StreamClient
) -> None:
    """What it has returned cannot be taken back."""
    events = [records_event(numbers, numbers[-1]) for numbers in ([1, 2], [5, 6], [3, 4])]
    script.on("SubscribeToShard", begun(*events))
    wanted = ShardRange(SHARD, AfterRecord("2"), SHARD_END)
    opened: list[SubscribedCursor] = []

    def subscribe(position: Position) -> SubscribedCursor:
        opened.append(subscribes(client, wanted)(position))
        return opened[-1]

    pages = read_range(subscribe, wanted, RetentionCheck(client))
    assert [one.data for one in next(pages)] == [b"5", b"6"]
    with pytest.raises(OutOfOrderError, match=f"{SHARD} of .* 3 came behind 6"):
        next(pages)
    opened[0].stop()


def test_a_task_reads_a_closed_shard_to_its_end(script: Script, client: StreamClient) -> None:
    """Each event of the closed shard names its children, and the subscription begins anew."""
    children = ["shardId-1", "shardId-2"]
    events = [records_event(numbers, 9, children) for numbers in ([1, 2], [3, 4], [5], [])]
    script.on("SubscribeToShard", begun(*events))
    wanted = ShardRange(SHARD, AfterRecord("2"), SHARD_END)

    pages = read_range(subscribes(client, wanted), wanted, RetentionCheck(client))
    assert [[one.data for one in records] for records in pages] == [[b"3", b"4"], [b"5"]]
