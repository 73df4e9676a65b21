"""Where a batch ends in a shard: what is in it, what is known of the rest, and what that costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.options.checked_options import Allowance
from sparkinesis.source.planning.batch_end import Finding, Finished, NoRows, Records
from sparkinesis.source.planning.probing.end_in_shard import EndInShard, EndSearch, Resumption
from sparkinesis.source.planning.probing.records_in_hand import UNLIMITED, Scale
from sparkinesis.source.planning.probing.shard_calls import Samples, ShardFront, Stretch
from sparkinesis.source.planning.probing.shard_prober import ShardProber
from sparkinesis.source.planning.probing.survey import Survey, Window
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import TRIM_HORIZON, AtTimestamp, Position
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.retention import RetentionCheck
from tests.streams import records_of, split

T = 1_790_000_000_000
MINUTE = 60_000
"""No record arrives that much later than the clock says."""
SHARD = "shardId-000000000000"


def record(number: int, ms: int | None, size: int = 1) -> Record:
    arrived = None if ms is None else (T + ms) / 1000
    return Record(
        data=bytes(size), sequence_number=str(number), approximate_arrival_timestamp=arrived
    )


def front(
    records: Sequence[Record], tip: int, *, at_tip: bool = False, at_end: bool = False
) -> ShardFront:
    """What a plan has in hand of a shard, at the service's clock."""
    made = ShardFront(StreamClient(StreamAddress("s")), SHARD, ShardBudget(Pace(0.0, 0.0)))
    made.cursor = made.open(TRIM_HORIZON)
    made.cursor.at_end = at_end
    made.hand.extend(records, UNLIMITED)
    made.at_tip, made.tip_ms = at_tip, T + tip
    return made


def search(of: ShardFront, survey: Survey | None = None) -> EndSearch:
    known = Survey(of.hand.arrivals, of.hand.weights) if survey is None else survey
    return EndSearch(of, Samples(of), known)


THREE = [record(1, 10), record(2, 20), record(3, 30)]
TIMELESS = [record(1, None), record(2, None), record(3, None)]


@pytest.mark.parametrize(
    ("shard", "count", "finding", "lag"),
    [
        (front(THREE, 100), 2, Records("2", T + 30 - MINUTE, T + 20, "1"), 80),
        (front(THREE, 100, at_tip=True), 2, Records("2", T + 30 - MINUTE, T + 20, "1"), 80),
        (front(THREE, 100), 3, Records("3", T + 30 - MINUTE, T + 30, "1"), 70),
        (front(THREE, 100, at_tip=True), 3, Records("3", T + 100 - MINUTE, T + 30, "1"), 0),
        (front(THREE, 15), 2, Records("2", T + 30 - MINUTE, T + 20, "1"), 0),
        (front(TIMELESS, 100), 2, Records("2", None, None, "1"), 0),
        (front(TIMELESS, 100, at_tip=True), 3, Records("3", T + 100 - MINUTE, None, "1"), 0),
        (front(THREE, 100), 0, NoRows(T + 10 - MINUTE), 90),
        (front(THREE[:1], 100), 0, NoRows(T + 10 - MINUTE), 90),
        (front(THREE, 5, at_tip=True), 0, NoRows(T + 10 - MINUTE), 0),
        (front(TIMELESS, 100), 0, NoRows(None), 0),
        (front([], 100, at_tip=True), 0, NoRows(T + 100 - MINUTE), 0),
        (front([], 100), 0, NoRows(None), 0),
        (front(THREE, 100, at_end=True), 0, NoRows(T + 10 - MINUTE), 90),
        (front([], 100, at_tip=True, at_end=True), 0, Finished(), 0),
    ],
)
def test_an_end_among_the_records_in_hand(
    shard: ShardFront, count: int, finding: Finding, lag: int
) -> None:
    found = search(shard).find(T + 1_000, count)
    hand = shard.hand
    assert hand.records is not None
    kept = hand.records[:count] if count else None
    assert found.end == EndInShard(finding, lag, count, kept)
    assert found.rest.numbers == hand.numbers[count:]
    assert found.cursor is shard.cursor
    assert found.limit == 10_000


@pytest.mark.parametrize(("size", "limit"), [(262_143, 10_000), (262_144, 1)])
def test_after_a_large_page_the_next_plan_probes_one_record(size: int, limit: int) -> None:
    shard = front([record(1, 10, size), record(2, 20)], 100)
    for count in (0, 2):
        found = search(shard).find(T, count)
        assert (found.limit, found.end.kept) == (limit, None)


def test_what_is_known_decides_without_a_call() -> None:
    shard = front(THREE, 100)
    found = search(shard, Survey(shard.hand.arrivals, shard.hand.weights, T + 25))
    assert [found.find(T + ms, None).end.records for ms in (5, 10, 20, 25)] == [0, 1, 2, 2]
    assert search(front(THREE, 100, at_tip=True)).find(T + 99, None).end.records == 3


@pytest.mark.parametrize(("tip", "lag"), [(100, 40), (55, 0)])
@pytest.mark.parametrize("since", [51, 40])
def test_an_end_before_a_record_of_a_sample(since: int, tip: int, lag: int) -> None:
    """The sample's cursor may be behind others of its records: the next plan opens its own."""
    shard = front(THREE, tip)
    known = Survey([T, T + 1, T + 2], [0.1, 0.2, 0.3], T + 1, [Window(T, T + 100, 10.0, 0.1)])
    searching = search(shard, known)
    cursor = shard.open(TRIM_HORIZON)
    early = [record(7, 50)] if since == 40 else []
    searching.samples.taken = [
        Stretch(T + 30, [record(6, 45)], cursor, is_all=False),
        Stretch(T + since, [*early, record(8, 60), record(9, 70)], cursor, is_all=False),
    ]
    found = searching.find(T + 50, None)
    before = Records("8", T + 60 - MINUTE, T + 60, "1", is_before=True)
    assert found.end == EndInShard(before, lag, 59), "a tenth of the weight of each record in hand"
    assert found.rest.numbers == ["8", "9"]
    assert (found.cursor, found.limit) == (None, 1)
    unknown = EndSearch(shard, searching.samples, Survey([T, T + 1], [0.1, 0.2], T + 1))
    assert unknown.find(T + 50, None).end.records is None


class Asking(StreamClient):
    """A client that notes what it asks for, and may do something before."""

    def __init__(self, endpoint: str, clock: ManualClock) -> None:
        address = StreamAddress("s", None, "us-east-1", endpoint)
        super().__init__(address, wall_clock_ms=clock)
        self.asked: list[int] = []
        """The instants of iterators, in ms."""
        self.limits: list[int] = []
        self.before: dict[int, Callable[[], object]] = {}
        """What to do before the iterator, or the page, of this number."""
        self.has_times = True
        self.whole_seconds = False

    def shard_iterator(self, shard_id: str, position: Position, **how: Any) -> str:
        if isinstance(position, AtTimestamp):
            self.asked.append(position.ms - T)
            self.before.pop(len(self.asked), lambda: None)()
            if self.whole_seconds:
                position = AtTimestamp(position.ms // 1000 * 1000)
        return super().shard_iterator(shard_id, position, **how)

    def get_records(self, shard_id: str, iterator: str, limit: int, **how: Any) -> Fetched:  # type: ignore[override]
        self.limits.append(limit)
        assert len(self.limits) < 100, "a search that goes on and on"
        self.before.pop(-len(self.limits), lambda: None)()
        fetched = super().get_records(shard_id, iterator, limit, **how)
        if self.has_times:
            return fetched
        records = [
            msgspec.structs.replace(one, approximate_arrival_timestamp=None)
            for one in fetched.page.records
        ]
        page = msgspec.structs.replace(fetched.page, records=records)
        return msgspec.structs.replace(fetched, page=page)


@dataclass
class Shard:
    """A shard of a local Kinesis, and its prober."""

    server: LocalServer
    clock: ManualClock
    kinesis: Any
    client: Asking = field(init=False)

    def __post_init__(self) -> None:
        self.kinesis.create_stream(StreamName="s", ShardCount=1)
        self.client = Asking(self.server.endpoint_url, self.clock)

    def put(self, *at: int) -> None:
        for ms in at:
            self.wait(ms)
            self.server.kinesis.call("PutRecord", StreamName="s", Data=b"x", PartitionKey="k")

    def wait(self, ms: int) -> None:
        self.clock.advance(T + ms - self.clock())

    @property
    def numbers(self) -> list[str]:
        return [one["SequenceNumber"] for one in records_of(self.kinesis, "s", SHARD)]

    def prober(self, limit: int = 2, pace: Pace = Pace(0, 0)) -> ShardProber:  # noqa: B008
        budget = ShardBudget(pace, itertools.count(0, 60).__next__, lambda _: None)
        made = ShardProber(self.client, SHARD, budget)
        check = RetentionCheck(self.client)
        made.probe(TRIM_HORIZON, check, Scale(Allowance(rows=10_000)), limit)
        self.client.limits.clear()
        return made

    def asked(self) -> tuple[list[int], list[int]]:
        """The instants and the limits asked for since the last time."""
        told = list(self.client.asked), list(self.client.limits)
        self.client.asked.clear()
        self.client.limits.clear()
        return told


@pytest.fixture
def shard() -> Iterator[Shard]:
    clock = ManualClock(T)
    with LocalServer(port=0, limits=False, clock=clock) as server:
        yield Shard(server, clock, server.client("kinesis"))


def told(found: Resumption) -> tuple[list[str], int, bool]:
    """What the next plan begins with: records, a limit, and whether a cursor is behind them."""
    return found.rest.numbers, found.limit, found.cursor is not None


@pytest.mark.parametrize("instant", [5_500, 5_999, 5_000])
def test_one_call_finds_the_first_record_after_an_instant(shard: Shard, instant: int) -> None:
    shard.put(*range(10), 5_000, 6_000, 6_001)
    shard.wait(9_000)
    prober = shard.prober()
    found = prober.find_end(T + instant)
    *_, later, _ = shard.numbers
    before = Records(later, T + 6_000 - MINUTE, T + 6_000, shard.numbers[0], is_before=True)
    assert found.end == EndInShard(before, 3_000)
    assert told(found) == ([later], 1, True)
    assert shard.asked() == ([instant + 1], [1])
    assert found.cursor is not None
    assert [one.sequence_number for one in found.cursor.fetch().page.records] == shard.numbers[-1:]


def test_a_sample_that_begins_later_does_not_tell_the_first_record_after_an_instant(
    shard: Shard,
) -> None:
    shard.put(*range(10), 5_001, 5_002)
    shard.wait(9_000)
    prober = shard.prober()
    prober._samples.jump(T + 5_002, 1)
    found = prober.find_end(T + 5_000)
    assert isinstance(found.end.finding, Records)
    assert found.end.finding.end == shard.numbers[-2]
    assert shard.asked() == ([5_002, 5_001], [1, 1])


def test_of_a_server_that_knows_whole_seconds_the_first_record_after_an_instant_is_found(
    shard: Shard,
) -> None:
    shard.put(0, 1, *[5_000] * 250, 6_000, 7_000)
    shard.wait(9_000)
    shard.client.whole_seconds = True
    prober = shard.prober()
    found = prober.find_end(T + 5_400)
    assert isinstance(found.end.finding, Records)
    assert found.end.finding.end == shard.numbers[-2]
    assert told(found)[0] == shard.numbers[-2:]
    assert shard.asked() == ([5_401], [1, 100, 100, 200])
    last = prober.find_end(T + 7_400)
    assert isinstance(last.end.finding, Records)
    assert last.end.finding.end == shard.numbers[-1]


HALVED = [32_001, 16_001, 8_001, 4_001, 2_001, 1_001, 501, 251, 126, 64, 33, 17]
"""The places between the third record and the tip, up to twenty milliseconds apart."""


def test_a_silence_up_to_the_tip_is_halved_and_the_rest_is_read(shard: Shard) -> None:
    """No iterator is asked for at an instant of the future."""
    shard.put(*range(10))
    shard.wait(64_000)
    prober = shard.prober()
    numbers = shard.numbers
    found = prober.find_end(T + 64_000)
    expected = Records(numbers[-1], T + 64_000 - MINUTE, T + 9, numbers[0])
    assert (found.end.finding, found.end.lag_ms, found.end.records) == (expected, 0, 10)
    assert told(found) == ([], 10_000, True)
    assert shard.asked() == (HALVED, [1] * 12 + [10_000])


@pytest.mark.parametrize(
    ("pace", "silence", "calls"),
    [(Pace(0, 0), 20, 0), (Pace(0, 0), 21, 1), (Pace(), 1_000, 0), (Pace(), 1_001, 1)],
)
def test_a_short_silence_is_read_without_a_probe(
    shard: Shard, pace: Pace, silence: int, calls: int
) -> None:
    """A second of records is a page, and calls are few; without limits calls are free."""
    shard.put(*range(4))
    shard.wait(2 + silence)
    prober = shard.prober(pace=pace)
    assert isinstance(prober.find_end(T + 2 + silence).end.finding, Records)
    assert [len(one) for one in shard.asked()] == [calls, calls + 1]


def test_a_burst_within_a_silence_is_found_and_read_to_its_last_record(shard: Shard) -> None:
    shard.put(*range(10), *range(40_000, 40_005))
    shard.wait(64_000)
    prober = shard.prober()
    numbers = shard.numbers
    found = prober.find_end(T + 64_000)
    expected = Records(numbers[-1], T + 64_000 - MINUTE, T + 40_004, numbers[0])
    assert found.end == EndInShard(expected)
    assert told(found) == ([], 10_000, True)
    probes = [
        32_001,
        52_000,
        46_000,
        43_000,
        41_500,
        40_750,
        40_375,
        40_187,
        40_093,
        40_046,
        40_023,
    ]
    assert shard.asked() == ([*probes, 40_011], [1] * 12 + [10_000])
    # The cursor of the sample that was read on from is behind what it has read.
    again = prober.find_end(T + 63_999)
    assert again.end == found.end
    instants, _ = shard.asked()
    assert instants[:2] == [64_000, 20_006], (
        "from the first silence up to the second one, which is known"
    )


def test_the_one_record_of_a_burst_is_the_last_one(shard: Shard) -> None:
    shard.put(*range(10), 40_000)
    shard.wait(64_000)
    prober = shard.prober(limit=9)
    numbers = shard.numbers
    found = prober.find_end(T + 64_000)
    expected = Records(numbers[-1], T + 64_000 - MINUTE, T + 40_000, numbers[0])
    assert found.end.finding == expected
    assert found.end.records is not None
    assert found.end.records > 10, "estimated, as it is not known how many are between"


def test_a_second_search_asks_nothing_of_a_silence_that_is_known(shard: Shard) -> None:
    shard.put(*range(10))
    shard.wait(64_000)
    prober = shard.prober()
    prober._samples.jump(T + 5, 3)
    for instant in HALVED:
        prober._samples.jump(T + instant, 1)
    shard.asked()
    found = prober.find_end(T + 64_000)
    assert isinstance(found.end.finding, Records)
    assert found.end.finding.end == shard.numbers[-1]
    assert shard.asked() == ([], [10_000])
    assert found.cursor is not prober.front.cursor, "it is read on from the nearest sample"


@pytest.mark.parametrize("probe", [1, 2])
def test_a_record_that_arrives_meanwhile_ends_the_batch(shard: Shard, probe: int) -> None:
    """While a silence is halved, and while the rest behind it is read."""
    shard.put(*range(10), 40_000)
    shard.wait(64_000)
    prober = shard.prober()
    if probe == 1:
        shard.client.before[2] = lambda: shard.put(64_001, 64_002)
    else:
        shard.client.before[-13] = lambda: shard.put(64_001, 64_002)
    found = prober.find_end(T + 64_000)
    numbers = shard.numbers
    first, *others = numbers[-2:]
    before = Records(first, T + 64_001 - MINUTE, T + 64_001, numbers[0], is_before=True)
    assert found.end.finding == before
    assert told(found) == ([first] if probe == 1 else [first, *others], 1, True)
    assert found.cursor is not None
    rest = [one.sequence_number for one in found.cursor.fetch().page.records]
    assert rest == (others if probe == 1 else [])


def test_the_end_of_a_closed_shard_is_met_behind_a_burst(shard: Shard) -> None:
    shard.put(*range(10), *range(40_000, 40_005))
    split(shard.kinesis, "s")
    shard.wait(64_000)
    prober = shard.prober()
    found = prober.find_end(T + 64_000)
    assert isinstance(found.end.finding, Records)
    assert found.end.finding.end == shard.numbers[-1]
    assert prober.front.is_ended
    assert len(prober.front.children or ()) == 2


def test_where_records_have_no_times_a_shard_is_read_on(shard: Shard) -> None:
    shard.client.has_times = False
    shard.put(*range(10), 40_000)
    shard.wait(64_000)
    prober = shard.prober()
    found = prober.find_end(T + 64_000)
    assert found.end.finding == Records(
        shard.numbers[-1], T + 64_000 - MINUTE, None, shard.numbers[0]
    )
    assert found.end.records == 11
    assert shard.asked() == ([], [10_000])


def test_reading_on_stops_at_the_first_record_after_the_instant(shard: Shard) -> None:
    """It arrives while the last records before it are read, and others behind it are not."""
    shard.put(*range(4))
    shard.wait(10)
    prober = shard.prober()
    shard.client.before[-1] = lambda: shard.put(11, 12)
    found = prober.find_end(T + 10)
    assert isinstance(found.end.finding, Records)
    assert found.end.finding.end == shard.numbers[3]
    assert found.rest.numbers == shard.numbers[4:]
    assert shard.asked() == ([], [10_000])
