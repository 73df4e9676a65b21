"""A cursor reads each record of its shard once, whatever becomes of iterators, pages and ends."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkinesis.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    PositionNotFoundError,
    ServiceError,
)
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.local.encoding.codecs import JsonCodec
from sparkinesis.local.faults import Call
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff, RetryLaterError
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.failing import Failing
from tests.integration.stream.conftest import SHARD, START_MS
from tests.streams import put, records_of, split

STARTS = ["horizon", "instant", "record", "record itself"]


FREE = Pace(0.0, 0.0)
EXPIRED = Fault.error("ExpiredIteratorException")


@dataclass
class Reading:
    """A shard that cursors read, and the time that they wait for retries."""

    server: LocalServer
    kinesis: Any
    waits: list[float] = field(default_factory=list)

    def client(self, give_up_after: float = 60.0) -> StreamClient:
        retry = Backoff(
            give_up_after=give_up_after,
            clock=lambda: sum(self.waits),
            sleep=self.waits.append,
            uniform=lambda _, most: most,
        )
        return StreamClient(StreamAddress("s", None, "us-east-1", self.server.endpoint_url), retry)

    def cursor(self, position: Position = TRIM_HORIZON, **options: Any) -> ShardCursor:
        return ShardCursor(self.client(), ShardBudget(FREE), SHARD, position, **options)

    def put(self, *datas: bytes) -> AfterRecord:
        """Returns the position of the last one."""
        put(self.kinesis, "s", list(datas), "k")
        return AfterRecord(records_of(self.kinesis, "s", SHARD)[-1]["SequenceNumber"])

    def answer(self, *calls: tuple[str, Fault | None]) -> None:
        """Answer the next calls of these operations so, each in its order."""
        left = list(calls)

        def plan(call: Call) -> Fault | None:
            at = next((n for n, one in enumerate(left) if one[0] == call.operation), None)
            return None if at is None else left.pop(at)[1]

        self.server.kinesis.faults = plan


@pytest.fixture
def reading(server: LocalServer, kinesis: Any) -> Reading:
    return Reading(server, kinesis)


def datas(fetched: Fetched) -> list[bytes]:
    return [record.data for record in fetched.page.records]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("counts", [[2, 1, 1], [8], [9]])
def test_what_is_not_kept_comes_again_and_nothing_else(
    reading: Reading, start: str, counts: list[int]
) -> None:
    """From wherever reading began, and though the shard ends with the page."""
    put(reading.kinesis, "s", [b"%d" % number for number in range(8)], "k")
    split(reading.kinesis, "s")
    client = reading.client()
    first = client.get_records(SHARD, client.shard_iterator(SHARD, TRIM_HORIZON), 1).page.records[0]
    positions: dict[str, Position] = {
        "horizon": TRIM_HORIZON,
        "instant": AtTimestamp(START_MS - 1_000),
        "record": AfterRecord(first.sequence_number),
        "record itself": AfterRecord(first.sequence_number),
    }
    options = {"inclusive": True} if start == "record itself" else {}
    cursor = reading.cursor(positions[start], **options)
    given: list[bytes] = []
    for count in [*counts, None, None]:
        if cursor.at_end:
            break
        fetched = cursor.fetch()
        if count is not None:
            fetched = cursor.keep(fetched, count)
            if count < 8:
                assert not cursor.at_end
                assert fetched.page.millis_behind_latest, "more is to come"
                assert not fetched.page.child_shards
        given += [record.data for record in fetched.page.records]
    expected = [b"%d" % number for number in range(8)]
    assert given == (expected[1:] if start == "record" else expected)
    assert cursor.at_end
    assert len(fetched.page.child_shards or ()) == 2


@pytest.mark.parametrize("named", ["NextShardIterator", "ChildShards"], ids=["named", "unnamed"])
def test_only_a_closed_shard_ends(
    reading: Reading, clock: ManualClock, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    """Though no answer has an iterator, and the end names its children or does not."""
    lost = Fault(omit=frozenset({"NextShardIterator", named}))
    put(reading.kinesis, "s", [b"0", b"1", b"2"], "k")
    calls = reading.server.kinesis.calls
    calls.clear()
    reading.server.kinesis.faults = Failing("GetRecords", then=lost)
    cursor = reading.cursor()
    given = [record.data for _ in range(4) for record in cursor.fetch(1).page.records]
    assert given == [b"0", b"1", b"2"]
    ended_while_open = cursor.at_end
    assert caplog.text.count("ListShards shows the shard as open. Reading goes on at") == 1
    split(reading.kinesis, "s")
    calls.clear()
    if named == "ChildShards":
        clock.advance(1_999)
        cursor.fetch()
        assert calls.count("ListShards") == 0, "open shards are taken to be open"
        clock.advance(1)
    assert not cursor.fetch().page.records
    assert (ended_while_open, cursor.at_end) == (False, True)
    assert calls.count("ListShards") == (0 if named == "NextShardIterator" else 1)


@pytest.mark.parametrize("is_inclusive", [False, True])
def test_a_sequence_number_that_is_refused_once_is_asked_for_again(
    reading: Reading, is_inclusive: bool
) -> None:
    """Each way to read at a record asks by this call: queries, workers, `tail`, `leases`."""
    position = reading.put(b"0")
    reading.put(b"1")
    refused = ("GetShardIterator", Fault.error("InvalidArgumentException", "no such number"))
    reading.answer(refused)
    found = datas(reading.cursor(position, inclusive=is_inclusive).fetch())
    assert found == ([b"0", b"1"] if is_inclusive else [b"1"])
    assert reading.waits == [0.5]
    reading.answer(refused, refused)
    with pytest.raises(PositionNotFoundError, match=r"asked twice.*no such number"):
        reading.client().shard_iterator(SHARD, position)
    assert reading.waits == [0.5, 0.5]


def test_a_page_that_stays_bad_is_an_error_that_names_its_place_and_is_fetched_anew(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading.put(*(b"%d" % number for number in range(4)))
    encode = JsonCodec._page
    bad = [True, True]

    def encode_page(codec: JsonCodec, page: Any) -> bytes:
        answer = json.loads(encode(codec, page))
        if len(answer["Records"]) == 3 and bad:
            bad.pop()
            answer["Records"][1]["SequenceNumber"] = ""
        return json.dumps(answer).encode()

    monkeypatch.setattr(JsonCodec, "_page", encode_page)
    client = reading.client(give_up_after=0)
    cursor = ShardCursor(client, ShardBudget(FREE), SHARD, TRIM_HORIZON)
    (first,) = cursor.fetch(1).page.records
    place = f"SequenceNumber is not a number.*{SHARD} of stream 's'.* {first.sequence_number}"
    for _ in range(2):
        with pytest.raises(ServiceError, match=place):
            cursor.fetch()
    assert [record.data for record in cursor.fetch().page.records] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("empty", [False, True], ids=["behind a page", "behind an empty page"])
def test_an_iterator_that_has_expired_is_replaced_where_reading_was(
    reading: Reading, clock: ManualClock, caplog: pytest.LogCaptureFixture, start: str, empty: bool
) -> None:
    at = reading.put(b"before")
    clock.advance(1)
    positions: dict[str, Position] = {
        "horizon": TRIM_HORIZON,
        "instant": AtTimestamp(START_MS + 1),
        "record": at,
        "record itself": at,
    }
    reading.put(b"0", b"1", b"2", b"3")
    reading.server.kinesis.empty_pages = 1 if empty else 0
    options = {"inclusive": True} if start == "record itself" else {}
    cursor = reading.cursor(positions[start], **options)
    found = datas(cursor.fetch(3))
    assert (not found) is empty
    for _ in range(2):
        clock.advance(300_001)
        reading.server.kinesis.empty_pages = 0
        found += datas(cursor.fetch(3))
    before = [b"before"] if start in {"horizon", "record itself"} else []
    assert found == [*before, b"0", b"1", b"2", b"3"]
    assert caplog.messages == [], "the server did not begin too early"
    assert reading.waits == []


@pytest.mark.parametrize("start", STARTS[1:])
def test_what_a_server_gives_from_before_the_position_is_dropped_and_told(
    reading: Reading, clock: ManualClock, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    at = reading.put(b"0", b"1", b"2")
    clock.advance(5_000)
    reading.put(b"3", b"4")
    position = AtTimestamp(START_MS + 5_000) if start == "instant" else at
    options = {"inclusive": True} if start == "record itself" else {}
    cursor = reading.cursor(position, **options)
    reading.answer(("GetShardIterator", Fault(begins_early=2)))
    before = [b"2"] if start == "record itself" else []
    assert datas(cursor.fetch()) == [*before, b"3", b"4"]
    (told,) = caplog.messages
    assert f"did not start to read shard {SHARD} of stream 's' at the requested position" in told
    assert reading.server.endpoint_url in told


def test_an_iterator_that_has_expired_is_told_where_it_is_not_to_be_replaced(
    reading: Reading, clock: ManualClock
) -> None:
    """A new one is replaced all the same: it tells nothing of the time since the last page."""
    reading.put(b"0", b"1")
    cursor = reading.cursor(renews=False)
    reading.answer(("GetRecords", EXPIRED))
    assert datas(cursor.fetch(1)) == [b"0"]
    assert reading.waits == [0.1]
    clock.advance(300_001)
    with pytest.raises(ExpiredIteratorError):
        cursor.fetch(1)


def test_new_iterators_that_have_expired_are_replaced_after_longer_and_longer_pauses(
    reading: Reading, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A trouble that has passed is forgotten."""
    reading.put(b"0", b"1")
    cursor = reading.cursor()
    # The second time, the iterator of the next page is the first one that has expired.
    for record, expired, waits in ((b"0", 1, [0.1]), (b"1", 4, [0.1, 0.2, 0.4])):
        reading.answer(*[("GetRecords", EXPIRED)] * expired)
        assert datas(cursor.fetch(1)) == [record]
        assert reading.waits == waits
        (told,) = caplog.messages
        assert f"a new iterator of shard {SHARD} of stream 's' in us-east-1" in told
        reading.waits.clear()
        caplog.clear()
        clock.advance(1_000)


def test_after_the_last_retry_of_a_new_iterator_reading_may_begin_anew(reading: Reading) -> None:
    reading.put(b"0")
    budget = ShardBudget(FREE)
    cursor = ShardCursor(reading.client(give_up_after=0.25), budget, SHARD, TRIM_HORIZON)
    reading.answer(*[("GetRecords", EXPIRED)] * 3)
    with pytest.raises(ServiceError, match=f"each new iterator of shard {SHARD} .* has expired"):
        cursor.fetch()
    assert datas(cursor.fetch()) == [b"0"]
    assert reading.waits == [0.1, 0.1]


def test_an_error_that_no_retry_helps_is_raised_as_it_is(reading: Reading) -> None:
    reading.answer(("GetRecords", Fault.error("AccessDeniedException")))
    with pytest.raises(AccessDeniedError) as caught:
        reading.cursor().fetch()
    assert "was being read at position" not in str(caught.value)


BUSY = Fault.error("ProvisionedThroughputExceededException")
LIKE_AN_END = Fault(omit=frozenset({"NextShardIterator", "ChildShards"}))


@pytest.mark.parametrize(
    "fails",
    [
        [("GetShardIterator", BUSY)],
        [("GetRecords", BUSY)],
        [("GetRecords", EXPIRED)],
        [("GetRecords", LIKE_AN_END), ("ListShards", BUSY)],
        [("GetRecords", LIKE_AN_END), ("GetShardIterator", None), ("GetShardIterator", BUSY)],
        [("GetRecords", LIKE_AN_END), ("GetRecords", BUSY)],
    ],
)
def test_a_reader_that_holds_no_thread_is_told_when_to_come_again(
    reading: Reading, fails: list[tuple[str, Fault | None]]
) -> None:
    reading.put(b"0")
    client = reading.client()
    budget = ShardBudget(FREE)
    cursor = ShardCursor(
        client, budget, SHARD, TRIM_HORIZON, retry=client.attempts(), asks_twice=True
    )
    reading.answer(*fails)
    with pytest.raises(RetryLaterError) as later:
        cursor.fetch()
    assert later.value.seconds == 0.1
    assert datas(cursor.fetch()) == [b"0"]
    assert not cursor.at_end
    assert reading.waits == []


def test_each_call_is_made_within_the_budget_of_its_operation(reading: Reading) -> None:
    reading.put(b"x" * 200, b"y" * 200)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    budget = ShardBudget(Pace(0.5, 100.0), lambda: now[0], sleep)
    cursor = ShardCursor(reading.client(), budget, SHARD, TRIM_HORIZON)
    assert cursor.due_in() == 0.0
    size = cursor.fetch().size
    assert size > 400
    assert cursor.due_in() == size / 100
    assert ShardCursor(reading.client(), budget, SHARD, TRIM_HORIZON).due_in() == 2.0
    now[0] = size / 100
    cursor.fetch()
    assert cursor.due_in() == 2.0, "an empty page"
    reading.answer(("GetRecords", LIKE_AN_END), ("GetRecords", LIKE_AN_END))
    rare = ShardBudget(Pace(0.1, 0.0), lambda: now[0], sleep)
    now[0] = 10.0
    ShardCursor(reading.client(), rare, SHARD, TRIM_HORIZON, asks_twice=True).fetch()
    assert now[0] == 20.0, "the second answer is asked for ten seconds after the first one"
    assert (rare.iterators.due_in(), rare.records.due_in()) == (10.0, 10.0)


@pytest.mark.parametrize(
    ("answers", "begins_early", "ends"),
    [
        # A listing may be from before the end: a second answer decides.
        ([LIKE_AN_END, LIKE_AN_END], 0, True),
        ([LIKE_AN_END, None], 0, False),
        # The second answer has what is known, from a server that begins too early.
        ([LIKE_AN_END, LIKE_AN_END], 1, True),
        ([LIKE_AN_END, LIKE_AN_END], 2, True),
        ([LIKE_AN_END, None], 2, False),
    ],
)
def test_a_shard_that_ends_twice_has_ended_though_it_is_listed_as_open(
    reading: Reading, answers: list[Fault | None], begins_early: int, ends: bool
) -> None:
    reading.put(b"0", b"1", b"2")
    cursor = reading.cursor(asks_twice=True)
    reading.answer(
        ("GetShardIterator", None),
        ("GetShardIterator", Fault(begins_early=begins_early)),
        *[("GetRecords", answer) for answer in answers],
    )
    assert datas(cursor.fetch()) == [b"0", b"1", b"2"]
    assert cursor.at_end is ends


@pytest.mark.parametrize("begins_early", [0, 2])
def test_a_shard_whose_second_answer_has_more_records_goes_on(
    reading: Reading, begins_early: int
) -> None:
    reading.put(b"0", b"1", b"2")
    cursor = reading.cursor(asks_twice=True)
    reading.answer(
        ("GetShardIterator", None),
        ("GetShardIterator", Fault(begins_early=begins_early)),
        ("GetRecords", LIKE_AN_END),
        ("GetRecords", LIKE_AN_END),
    )
    assert datas(cursor.fetch(2)) == [b"0", b"1"]
    assert not cursor.at_end
    assert datas(cursor.fetch()) == [b"2"]


def test_a_shard_whose_first_page_is_like_an_end_is_read(reading: Reading) -> None:
    """It is empty, and the reader is not behind a record yet."""
    cursor = reading.cursor(asks_twice=True)

    def plan(call: Call) -> Fault | None:
        if call.operation == "ListShards":
            reading.server.kinesis.call("PutRecord", StreamName="s", Data=b"0", PartitionKey="k")
        return LIKE_AN_END if call.operation == "GetRecords" and call.ordinal <= 2 else None

    reading.server.kinesis.faults = plan
    assert cursor.fetch().page.records == []
    assert not cursor.at_end
    assert datas(cursor.fetch()) == [b"0"]


def test_one_of_several_open_shards_has_not_ended(reading: Reading) -> None:
    reading.kinesis.create_stream(StreamName="two", ShardCount=2)
    address = StreamAddress("two", None, "us-east-1", reading.server.endpoint_url)
    cursor = ShardCursor(StreamClient(address), ShardBudget(FREE), SHARD, TRIM_HORIZON)
    reading.answer(("GetRecords", LIKE_AN_END))
    cursor.fetch()
    assert not cursor.at_end


def test_without_permission_to_list_a_shard_that_looks_ended_is_taken_to_have(
    reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cursor = reading.cursor()
    reading.answer(
        ("GetRecords", LIKE_AN_END), ("ListShards", Fault.error("AccessDeniedException"))
    )
    cursor.fetch()
    assert cursor.at_end
    assert f"Cannot check whether shard {SHARD} of stream 's' in us-east-1" in caplog.text
