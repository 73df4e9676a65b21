"""From pages to batches: where reading goes on, what is skipped, and what errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from sparkinesis.errors import (
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress, StreamIdentifier, StreamMark
from sparkinesis.stream.calls.client import StreamSummary
from sparkinesis.stream.calls.shared_calls import SharedAnswer
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import ChildShard, Fetched, HashKeyRange, Page, Record, size_of
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS
from sparkinesis.stream.shard import Shard
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings, ReadRange
from sparkinesis.worker.lifecycle.shard.batcher import Batcher, ReadEnd
from sparkinesis.worker.lifecycle.shard.concurrent_delivery import ConcurrentDeliverer
from sparkinesis.worker.lifecycle.shard.fetching import ShardFetching
from sparkinesis.worker.lifecycle.shard.processing import Processing
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.on_error import Retry
from sparkinesis.worker.options import DEFAULT_HELD_BYTES, WorkerOptions
from sparkinesis.worker.reporting.event_log import WorkerEvents
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.retrieval.ahead import FetchRequest
from sparkinesis.worker.retrieval.memory import Account, MemoryBudget
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage
from tests.unit.worker.delivering import Held, Setting

SHARD = "shardId-000000000000"
NOW_MS = 1_790_000_000_000
WORKER_CLOCK = 500.0


@dataclass
class Service:
    """The retrievals that were opened, and what the next ones give."""

    opened: list[tuple[Position, bool]] = field(default_factory=list)
    announced: list[bool] = field(default_factory=list)
    stopped: int = 0
    pages: list[FetchedPage | Exception] = field(default_factory=list)
    listed: list[Shard] = field(default_factory=list)
    next_from: float = 0.0
    is_stopped: bool = False
    heard_at: float | None = None
    oldest_at: float | None = None
    now: float = WORKER_CLOCK
    described: int = 0
    required: list[float] = field(default_factory=list)
    distributes: bool = False
    created_ms: int = 0
    takes: float = 0.0
    describing: Exception | None = None

    def open(self, request: FetchRequest) -> Service:
        self.opened.append((request.start, request.inclusive))
        self.announced.append(request.announce_silence)
        self.is_stopped = False
        return self

    def take(self) -> FetchedPage | None:
        page = self.pages.pop(0) if self.pages else None
        if isinstance(page, Exception):
            raise page
        return page

    def stop(self) -> None:
        self.stopped += 1

    @property
    def waiting(self) -> Service:
        return self

    # of the client

    @property
    def address(self) -> StreamAddress:
        return StreamAddress("s", None, "us-east-1")

    def describe(self) -> StreamSummary:
        self.described += 1
        self.now += self.takes
        if self.describing is not None:
            raise self.describing
        return StreamSummary(86_400_000, NOW_MS, self.distributes, self.created_ms)

    def stream_arn(self) -> str:
        return "arn:aws:kinesis:us-east-1:123456789012:stream/s"

    def list_shards(self, at: Position | None = None) -> tuple[list[Shard], int]:
        return self.listed, NOW_MS

    # of the streams that an application reads

    def require(self, address: StreamAddress, stream: StreamIdentifier, since: float) -> None:
        self.required.append(since)
        if self.describing is not None:
            raise self.describing


def record(number: int, age_s: float = 0.0) -> Record:
    return Record(
        data=b"%d" % number,
        partition_key="k",
        sequence_number=str(number),
        approximate_arrival_timestamp=NOW_MS / 1000 - age_s,
    )


def aggregated(number: int, count: int) -> Record:
    (packed,) = aggregate([("k", None, b"%d" % n) for n in range(count)])
    return msgspec.structs.replace(record(number), data=packed.data)


def page(*records: Record, end: bool = False, waited: float = 0.0) -> FetchedPage:
    children = None
    if end:
        whole = HashKeyRange("0", str(2**128 - 1))
        children = [ChildShard("shardId-000000000001", [SHARD], whole)]
    behind = Page(list(records), None if end else "next", 10, children)
    return FetchedPage(Fetched(behind, size_of(records), NOW_MS), end, WORKER_CLOCK - waited)


@pytest.fixture
def service() -> Service:
    return Service()


def batcher(
    service: Service,
    started_ms: int = NOW_MS,
    memory: MemoryBudget | None = None,
    start: Position = TRIM_HORIZON,
    reshard_range: tuple[int, int] | None = None,
    *,
    unread: WantedRecords | None = None,
    mark: StreamMark | None = None,
    reads: ReadRange | None = None,
    stream: StreamIdentifier | None = None,
    metrics: Metrics = OFF,
    **options: Any,
) -> Batcher:
    """A shard's batcher, which begins to read at ``start``."""
    settings = ConsumerSettings(
        application="app",
        worker_id="w",
        failures=Failures(lambda: NOW_MS),
        client=cast(Any, service),
        factory=cast(Any, None),
        on_error=cast(Any, None),
        initial=TRIM_HORIZON,
        started_ms=started_ms,
        service_time_ms=lambda: NOW_MS,
        options=WorkerOptions(**options),
        timing=Timing(clock=lambda: service.now),
        rng=cast(Any, None),
        publish=WorkerEvents(LogPlace("app", "w"), "s"),
        memory=memory or MemoryBudget(DEFAULT_HELD_BYTES),
        metrics=metrics,
        reads=reads,
        stream=stream,
        describe=SharedAnswer(service.describe, 1.0, lambda: service.now),
        same_streams=cast(Any, service),
    )
    taker = cast(Any, None)
    fetching = ShardFetching(SHARD, settings, cast(Any, service.open), taker, mark=mark)
    made = Batcher(fetching, settings, reshard_range)
    made.begin(start, unread)
    return made


def take(reading: Batcher) -> list[bytes] | None:
    batch = reading.take()
    return None if batch is None else [each.data for each in batch.records]


def test_a_checkpoints_own_record_is_read_to_see_that_it_is_kept_and_dropped(
    service: Service,
) -> None:
    reading = batcher(service, start=AfterRecord("1", sub_sequence_number=0))
    service.pages = [page(), page(record(1), record(2)), page(record(3))]
    assert [take(reading) for _ in range(4)] == [[], [b"2"], [b"3"], None]
    assert service.opened == [(AfterRecord("1", sub_sequence_number=0), True)]


@pytest.mark.parametrize("error", [ServiceError("throttled"), RuntimeError("a bug")], ids=str)
def test_a_failure_goes_on_behind_what_was_taken(service: Service, error: Exception) -> None:
    reading = batcher(service)
    service.pages = [page(record(1), record(2)), error, page(record(3))]
    assert take(reading) == [b"1", b"2"]
    with pytest.raises(type(error)):
        reading.take()
    assert take(reading) == [b"3"]
    # With what is known of the time: nothing that followed had arrived by then.
    behind = AfterRecord("2", clear_until=NOW_MS - CLOCK_MARGIN_MS, arrived_ms=NOW_MS)
    assert service.opened == [(TRIM_HORIZON, False), (behind, False)]
    assert service.stopped == 1


def test_a_position_that_is_gone_goes_on_with_what_is_kept(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    reading = batcher(service, start=AfterRecord("1", sub_sequence_number=3))
    service.pages = [PositionNotFoundError("1 is gone."), page(record(5))]
    assert take(reading) is None
    assert take(reading) == [b"5"]
    assert service.opened[-1] == (TRIM_HORIZON, False)
    assert f"the checkpoint 1:3 of shard {SHARD}" in caplog.text
    assert "Resuming at the oldest record kept" in caplog.text


def test_a_shard_that_is_gone_has_ended(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    reading = batcher(service)
    service.listed = [Shard("shardId-000000000007", ())]
    service.pages = [ShardNotFoundError("It is gone.")]
    assert take(reading) is None
    assert (reading.end, service.stopped) == (ReadEnd(rest_is_lost=True), 1)
    assert f"The rest of shard {SHARD}" in caplog.text
    assert take(reading) is None
    assert len(service.opened) == 1


def test_what_follows_a_shard_is_no_older_than_its_last_record(service: Service) -> None:
    """That the end is seen late, and that silence came before it, say nothing of the children."""
    reading = batcher(service)
    assert reading.shard_end == ShardEnd(None, None)
    service.pages = [page(record(1, age_s=9000), record(2, age_s=7200)), page(), page(end=True)]
    assert [take(reading) for _ in range(3)] == [[b"1", b"2"], [], []]
    assert reading.shard_end == ShardEnd(NOW_MS, NOW_MS - 7_200_000 - CLOCK_MARGIN_MS)


def test_what_follows_a_shard_is_no_older_than_the_checkpoint_behind_which_nothing_came(
    service: Service,
) -> None:
    start = AfterRecord("1", sub_sequence_number=0, arrived_ms=NOW_MS - 5000)
    reading = batcher(service, start=start)
    service.pages = [page(record(1, age_s=5), end=True)]
    assert take(reading) == []
    assert reading.shard_end == ShardEnd(NOW_MS, NOW_MS - 5000 - CLOCK_MARGIN_MS)


def test_a_jump_does_not_go_back(service: Service) -> None:
    """Arrival times are approximate: an instant may begin before what was taken already."""
    half_done = aggregated(1, 3)
    start = AfterRecord("1", sub_sequence_number=1)
    reading = batcher(service, start=start, skip_older_than=60)
    service.pages = [page(half_done, record(2, 70)), page(half_done, record(2, 70), record(3))]
    assert [take(reading) for _ in range(2)] == [None, [b"2", b"3"]]
    service.pages += [page(record(9), record(10, 70), waited=1), page(half_done, record(3))]
    service.pages += [page(record(3)), page(record(9), record(10, 50), record(11))]
    assert [take(reading) for _ in range(4)] == [None, [], [], [b"9", b"10", b"11"]]
    bounds = [AtTimestamp(NOW_MS - 60_000), AtTimestamp(NOW_MS - 59_000)]
    assert [one for one, _ in service.opened][1:] == bounds


def test_a_jump_is_made_once_though_the_server_begins_before_the_instant(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Some know instants to the second, and little memory makes a page of one record."""
    caplog.set_level("INFO")
    reading = batcher(service, skip_older_than=60.0)
    before = page(record(1, age_s=60.5)), page(record(2, age_s=60.2))
    service.pages = [before[0], *before, page(record(3, age_s=60))]
    assert [take(reading) for _ in range(4)] == [None, [], [], [b"3"]]
    assert [start for start, _ in service.opened][1:] == [AtTimestamp(NOW_MS - 60_000)]
    assert caplog.text.count(f"Skipping to {NOW_MS - 60_000} (epoch ms) in shard {SHARD}") == 1


def test_while_a_jump_would_have_to_wait_what_is_too_old_is_dropped(service: Service) -> None:
    """A subscription that would be refused brings the bound no nearer."""
    reading = batcher(service, skip_older_than=60.0)
    service.next_from = WORKER_CLOCK + 0.1
    service.pages = [page(record(1, age_s=100)), page(record(2, age_s=99))]
    assert take(reading) == []
    assert len(service.opened) == 1
    service.next_from = WORKER_CLOCK
    assert take(reading) is None
    take(reading)
    assert service.opened[-1] == (AtTimestamp(NOW_MS - 60_000), False)


def test_after_a_pause_in_which_records_may_have_expired_the_last_one_is_looked_at(
    service: Service,
) -> None:
    reading = batcher(service)
    service.pages = [page(record(5))]
    assert take(reading) == [b"5"]
    later = Fetched(Page([record(5), record(6)], "next", 10), 100, NOW_MS + 2 * 86_400_000)
    service.pages = [FetchedPage(later, False, WORKER_CLOCK)]
    assert take(reading) is None, "a record between the two may be gone"
    assert service.opened[-1] == (TRIM_HORIZON, False)
    service.pages = [FetchedPage(later, False, WORKER_CLOCK)]
    assert take(reading) == [b"6"]
    start, is_inclusive = service.opened[-1]
    assert isinstance(start, AfterRecord)
    assert (start.sequence_number, is_inclusive) == ("5", True)
    service.pages = [FetchedPage(later, False, WORKER_CLOCK)]
    assert take(reading) == [b"5", b"6"], "asked once"


def test_once_ended_nothing_is_taken_and_nothing_opened(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1))]
    assert take(reading) == [b"1"]
    reading._fetching.end()
    assert service.stopped == 1
    service.pages = [page(record(2))]
    reading.begin(TRIM_HORIZON)
    assert take(reading) is None
    assert len(service.opened) == 1


@pytest.mark.parametrize(
    ("skip", "fetched", "taken"),
    [
        (0, page(record(1, age_s=5.001), record(2, age_s=5), waited=1e6), [b"2"]),
        (60, page(Record(data=b"x", partition_key="k", sequence_number="1")), [b"x"]),
        (60, page(record(1, age_s=100), end=True), []),
    ],
    ids=["0 is the worker's start", "without an arrival time", "the end must be seen"],
)
def test_what_skipping_leaves_of_a_page(
    service: Service, skip: float, fetched: FetchedPage, taken: list[bytes]
) -> None:
    reading = batcher(service, started_ms=NOW_MS - 5000, skip_older_than=skip)
    service.pages = [fetched]
    assert take(reading) == taken
    assert (reading.end is not None) == fetched.at_shard_end


def test_bytes_are_counted_once(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1)), page(record(2))]
    take(reading)
    take(reading)
    assert (reading.take_byte_count(), reading.take_byte_count()) == (4, 0)


def crowded() -> MemoryBudget:
    """What is left of it: room for four records or so in a batch."""
    budget = MemoryBudget(64 * 2_500)
    Account(budget).ask(1).force(64 * 2_500)
    return budget


def held_page(budget: MemoryBudget, *records: Record, **of: Any) -> FetchedPage:
    return replace(page(*records, **of), hold=Account(budget).ask(1_000))


def test_a_page_that_is_too_large_for_a_batch_comes_in_parts(service: Service) -> None:
    """Each record once, in order, and the shard's end with the last part."""
    budget = crowded()
    others = budget.held
    reading = batcher(service, memory=budget)
    service.pages = [held_page(budget, *map(record, range(1, 14)), end=True)]
    parts: list[list[bytes]] = []
    while reading.end is None:
        batch = reading.take()
        assert batch is not None
        parts.append([each.data for each in batch.records])
        assert batch.millis_behind_latest is not None
        assert budget.held - others < 1_000 + 2_500 + 600
    assert list(chain.from_iterable(parts)) == [b"%d" % number for number in range(1, 14)]
    assert len(parts) > 2
    assert reading.end is not None
    assert [child.id for child in reading.end.children] == ["shardId-000000000001"]
    assert reading.take() is None
    assert budget.held == others, "of page and batches"


def test_batches_in_use_keep_their_memory_and_the_next_one_waits_for_it(service: Service) -> None:
    budget = crowded()
    others = budget.held
    reading = batcher(service, memory=budget)
    service.pages = [page(*map(record, range(1, 14)))]
    first = reading.take()
    assert first
    assert budget.held - others >= len(first) * 500
    assert reading.take(in_use=1) is None
    assert take(reading) == [b"%d" % (len(first) + n) for n in range(1, len(first) + 1)]


def test_a_page_is_counted_until_the_last_of_it_is_in_a_batch(service: Service) -> None:
    for budget, records in ((MemoryBudget(DEFAULT_HELD_BYTES), 1), (crowded(), 13)):
        reading = batcher(service, memory=budget)
        fetched = held_page(budget, *map(record, range(records)))
        assert fetched.hold is not None
        service.pages = [fetched]
        sizes = [fetched.hold.size]
        while reading.take():
            sizes.append(fetched.hold.size)
        assert sizes == [1_000] * (len(sizes) - 1) + [0]
        assert (len(sizes) > 2) == (records > 1)


def test_a_shard_on_hold_keeps_the_memory_of_the_batches_in_use(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1))]
    assert reading.take()
    held = reading.bytes_held
    assert held > 0
    reading.give_back(1)
    assert reading.bytes_held == held
    reading.give_back(0)
    assert reading.bytes_held == 0


def test_with_concurrency_the_memory_of_a_batch_is_kept_until_its_records_are_done(
    service: Service,
) -> None:
    budget = crowded()
    begun: list[Callable[[BaseException | None], None]] = []
    setting = Setting(Retry(), WorkerOptions(concurrency=64))
    setting.calls = cast(Any, SimpleNamespace(begin=lambda _, __, done: begun.append(done)))
    held = cast(HeldLease, Held())
    deliverer = ConcurrentDeliverer(
        held,
        cast(Any, SimpleNamespace(process_record=None)),
        Checkpointer(held, lambda: 0),
        cast(Any, setting),
        is_ending=lambda: False,
        wake=lambda: None,
    )
    reading = batcher(service, memory=budget)
    processing = Processing(held, reading, deliverer, cast(Any, setting), lambda: None)
    records = [msgspec.structs.replace(record(n), partition_key=str(n)) for n in range(13)]
    service.pages = [page(*records)]
    processing.step()
    first = len(begun)
    assert 0 < first < len(records)
    for done in begun[1:]:
        done(None)
    processing.step()
    assert len(begun) == first, "the first record is not done"
    begun[0](None)
    processing.step()
    assert first < len(begun) < len(records)


@pytest.mark.parametrize("end", [False, True])
def test_batches_in_use_are_released_in_the_order_of_the_shard(
    service: Service, *, end: bool
) -> None:
    budget = MemoryBudget(DEFAULT_HELD_BYTES)
    reading = batcher(service, memory=budget, skip_older_than=60)
    service.next_from = WORKER_CLOCK + 1
    data = [b"x" * size for size in (1_000, 10_000, 100_000)]
    kept = [msgspec.structs.replace(record(n), data=one) for n, one in enumerate(data)]
    service.pages = [page(kept[0]), page(record(9, age_s=100)), page(kept[1]), page(kept[2])]
    held = []
    for in_use in (0, 1, 1, 2):
        reading.take(in_use)
        held.append(budget.held)
    assert held[0] == held[1], "a batch without records has no memory"
    assert 2_000 < held[0] < 20_000 < held[2] < 200_000 < held[3]
    reading.take(2)
    assert budget.held == held[3] - held[0]
    if end:
        reading.close()
        assert budget.accounts == 0, "nothing is kept for the shard"
        assert reading.take() is None
        assert len(service.opened) == 1
    else:
        reading.take()
    assert budget.held == 0


def test_a_failure_in_the_midst_of_a_page_goes_on_behind_the_parts_that_were_taken(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = crowded()
    others = budget.held
    reading = batcher(service, memory=budget)
    service.pages = [held_page(budget, *map(record, range(1, 11)))]
    first = take(reading)
    assert first
    with monkeypatch.context() as patch:
        patch.setattr(
            "sparkinesis.worker.lifecycle.shard.batcher.make_batch", lambda *_, **__: 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            reading.take()
    assert budget.held - others < 2_500, "the page is fetched again"
    reading.take()
    place = service.opened[-1][0]
    assert isinstance(place, AfterRecord)
    assert place.sequence_number == first[-1].decode()


@pytest.mark.parametrize("way", ["stop", "begin", "close", "jump", "error"])
def test_however_reading_ends_its_memory_comes_back(service: Service, way: str) -> None:
    budget = crowded()
    others = budget.held
    reading = batcher(service, memory=budget, skip_older_than=60.0)
    age = 3600.0 if way == "jump" else 0.0
    service.pages = [
        held_page(budget, *[record(number, age_s=age) for number in range(1, 11)]),
        ServiceError("no"),
    ]
    reading.take()
    if way == "stop":
        reading.stop()
    elif way == "begin":
        reading.begin(AtTimestamp(NOW_MS))
    elif way == "close":
        reading.close()
    elif way == "error":
        while service.pages[:1] != []:
            with contextlib.suppress(ServiceError):
                reading.take()
    assert budget.held - others <= (2_500 if way in {"stop", "begin"} else 0)
    if way in {"stop", "begin"}:  # the batch is still with the processor
        service.pages = []
        assert reading.take() is None
        assert budget.held == others


def test_aggregates_are_taken_a_few_at_a_time_until_their_expansion_is_known(
    service: Service,
) -> None:
    budget = MemoryBudget(64 * 20_000)
    Account(budget).ask(1).force(64 * 20_000)
    others = budget.held
    reading = batcher(service, memory=budget)
    blobs = [
        blob.data for blob in aggregate([("k", None, bytes(40)) for _ in range(400)], max_size=500)
    ]
    records = [
        Record(data=blob, partition_key="k", sequence_number=str(number + 1))
        for number, blob in enumerate(blobs)
    ]
    size = sum(map(len, blobs))
    whole = FetchedPage(Fetched(Page(records, "next", 10), size, NOW_MS), False, WORKER_CLOCK)
    service.pages = [whole]
    counts: list[int] = []
    for _ in range(len(records)):
        batch = reading.take()
        if batch is None:
            break
        counts.append(len(batch))
        assert budget.held - others <= 1.2 * 20_000
    assert sum(counts) == 400
    assert counts[0] < counts[1]


def test_a_pause_ends_the_time_at_the_tip_and_gives_back_all_memory(service: Service) -> None:
    """Nobody looks: a shard that is closed meanwhile is not taken for one without an end."""
    reader = batcher(service)
    tip = FetchedPage(Fetched(Page([], "next", 0), 0, NOW_MS), False, WORKER_CLOCK)
    service.pages = [page(record(1)), tip]
    assert reader.take()
    assert reader.bytes_held > 0
    assert reader.take() is not None
    since = [reader.last_page.time_at_tip.since]
    reader._fetching.pause()
    reader.give_back(0)
    since.append(reader.last_page.time_at_tip.since)
    assert since == [WORKER_CLOCK, None]
    assert reader.bytes_held == 0
    service.pages = [page(record(2))]
    assert reader.take() is None
    reader._fetching.resume()
    batch = reader.take()
    assert batch is not None
    assert [one.data for one in batch.records] == [b"2"]


def test_the_age_of_a_batch_is_that_of_its_first_record_that_is_not_done(service: Service) -> None:
    """The checkpoint's own record, which is read to see that it is kept, is older."""
    reading = batcher(service, start=AfterRecord("1", sub_sequence_number=0))
    service.pages = [page(record(1, 3600.0), record(2, 5.0), record(3, 1.0), waited=2.0), page()]
    assert take(reading) == [b"2", b"3"]
    assert reading.oldest_at == WORKER_CLOCK - 2.0 - 5.0
    assert take(reading) == []
    assert reading.oldest_at is None


def test_the_last_page_that_was_heard_of_may_be_one_that_waits(service: Service) -> None:
    reading = batcher(service)
    assert reading._fetching.heard_at == WORKER_CLOCK, "since then a page is waited for"
    service.pages = [page()]
    assert take(reading) == []
    service.heard_at, service.oldest_at = WORKER_CLOCK + 9.0, WORKER_CLOCK - 1.0
    assert (reading._fetching.heard_at, reading.waiting_since) == (
        WORKER_CLOCK + 9.0,
        WORKER_CLOCK - 1.0,
    )
    service.now += 11.0
    reading.begin(TRIM_HORIZON)
    assert reading._fetching.heard_at == WORKER_CLOCK + 9.0
    assert reading.waiting_since is None


def test_before_it_is_read_a_shard_is_not_waited_for(service: Service) -> None:
    settings = batcher(service)._settings
    none = cast(Any, None)
    reading = Batcher(ShardFetching(SHARD, settings, none, none), settings, None)
    assert reading.end is None
    heard = [reading._fetching.heard_at]
    for begin in (reading.expect_page, lambda: reading.begin(TRIM_HORIZON)):
        service.now += 3.0
        begin()
        heard.append(reading._fetching.heard_at)
    assert heard == [None, WORKER_CLOCK + 3.0, WORKER_CLOCK + 3.0], "it has been waited for since"


def test_the_part_of_a_page_that_waits_is_as_old_as_its_first_record(service: Service) -> None:
    reading = batcher(service, memory=crowded())
    service.pages = [page(*(record(n, age_s=100 - n) for n in range(13)))]
    batch = reading.take()
    assert batch
    assert reading.waiting_since == WORKER_CLOCK - (100 - len(batch))


@pytest.mark.parametrize("end", [False, True])
def test_what_was_taken_is_fetched_again_if_asked_for(service: Service, *, end: bool) -> None:
    reading = batcher(service)
    service.pages = [page(record(1)), page(record(2), end=end), page(record(2), end=end)]
    assert [take(reading) for _ in range(2)] == [[b"1"], [b"2"]]
    reading.take_again()
    assert reading.end is None
    assert take(reading) == [b"2"]
    assert len(service.opened) == 2
    start, _ = service.opened[-1]
    assert isinstance(start, AfterRecord)
    assert start.sequence_number == "1"


def test_a_pause_however_short_ends_the_retrieval(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1))]
    assert take(reading) == [b"1"]
    reading._fetching.pause()
    assert service.stopped == 1
    service.is_stopped = True
    service.now += 5.0
    reading._fetching.pause()
    assert reading._fetching.paused_since == WORKER_CLOCK
    reading._fetching.resume()
    assert not reading._fetching.is_paused
    service.pages = [page(record(2))]
    assert take(reading) == [b"2"]
    assert len(service.opened) == 2


def test_a_shard_that_is_only_said_to_be_gone_has_not_ended(service: Service) -> None:
    """Of all shards that are listed, it is one."""
    reading = batcher(service)
    service.listed = [Shard("shardId-000000000007", ()), Shard(SHARD, ())]
    service.pages = [ShardNotFoundError("It is gone."), page(record(1))]
    with pytest.raises(ShardNotFoundError):
        reading.take()
    assert reading.end is None
    assert take(reading) == [b"1"]


@pytest.mark.parametrize("error", [PositionNotFoundError("gone"), ShardNotFoundError("gone")])
def test_what_is_gone_with_its_stream_is_no_loss_of_the_new_stream(
    service: Service, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    former = StreamMark("us-east-1", "123456789012", "s", 5_000_000)
    service.created_ms = 9_000_000
    reading = batcher(service, mark=former)
    service.pages = [error]
    with pytest.raises(StreamNotFoundError, match="was deleted, and made anew"):
        reading.take()
    assert service.stopped == 1
    assert reading.end is None
    assert "lost" not in caplog.text


def test_a_stream_that_was_described_just_before_it_was_made_anew_is_asked_for_again(
    service: Service,
) -> None:
    former = StreamMark("us-east-1", "123456789012", "s", 5_000_000)
    service.created_ms = former.created_ms
    reading = batcher(service, mark=former)
    service.pages = [PositionNotFoundError("gone"), PositionNotFoundError("gone")]
    assert reading.take() is None
    service.created_ms, service.now = 9_000_000, service.now + 0.5
    with pytest.raises(StreamNotFoundError, match="was deleted, and made anew"):
        reading.take()


def test_the_first_records_of_a_retrieval_are_those_of_the_stream_that_was_opened(
    service: Service,
) -> None:
    """An iterator that was made by the stream's name may lead into a later stream."""
    reading = batcher(service, stream=StreamIdentifier("123456789012", "s", 1763700000))
    service.pages = [page(waited=3.0), page(record(1), waited=2.0), page(record(2), waited=1.0)]
    service.describing = StreamNotFoundError("It is a later one.")
    assert take(reading) == []
    with pytest.raises(StreamNotFoundError):
        reading.take()
    service.describing = None
    service.pages.insert(0, page(record(1), waited=1.5))
    assert [take(reading) for _ in range(2)] == [[b"1"], [b"2"]]
    assert service.required == [WORKER_CLOCK - 2.0, WORKER_CLOCK - 1.5]
    reading.stop()
    service.pages = [page(end=True)]
    assert take(reading) == []
    assert service.required[2:] == [WORKER_CLOCK]


def test_of_an_only_stream_nobody_is_asked(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1))]
    assert take(reading) == [b"1"]
    assert service.required == []


@pytest.mark.parametrize("wants_empty", [False, True])
def test_silence_is_announced_to_who_wants_empty_batches(
    service: Service, *, wants_empty: bool
) -> None:
    reading = batcher(service, call_even_for_empty_batches=wants_empty)
    reading.take()
    assert service.announced == [wants_empty]


def test_a_replay_reads_its_range_and_ends_behind_it(service: Service) -> None:
    """Arrival times are in no order."""
    reads = ReadRange(NOW_MS - 60_000, NOW_MS - 30_000)
    reading = batcher(service, reads=reads)
    first = page(record(1, age_s=60.001), record(2, age_s=60), record(3, age_s=30))
    service.pages = [first, page(record(4, age_s=31), record(5, age_s=20))]
    assert take(reading) == [b"2"]
    ends = [reading.end]
    assert take(reading) == [b"4"]
    assert [*ends, reading.end] == [None, ReadEnd(ShutdownReason.REQUESTED)]
    assert service.stopped == 1


def test_a_shard_that_ends_within_a_replays_range_has_ended(service: Service) -> None:
    reading = batcher(service, reads=ReadRange(NOW_MS - 60_000, NOW_MS + 60_000))
    service.pages = [page(record(1), end=True)]
    assert take(reading) == [b"1"]
    assert reading.end is not None
    assert (reading.end.reason, len(reading.end.children)) == (ShutdownReason.SHARD_END, 1)


def test_an_end_that_names_no_children_has_none(service: Service) -> None:
    reading = batcher(service)
    nameless = Fetched(Page([record(1)], None, 0), 100, NOW_MS)
    service.pages = [FetchedPage(nameless, True, WORKER_CLOCK)]
    assert take(reading) == [b"1"]
    assert reading.end == ReadEnd()


def test_a_batch_knows_its_fetch(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1))]
    batch = reading.take()
    assert batch is not None
    assert batch.fetched_at == AtTimestamp(NOW_MS).instant
    assert batch.millis_behind_latest == 10
    assert batch.records[0].shard_id == SHARD


def test_the_form_that_the_processor_asks_for_is_kept_from_batch_to_batch(service: Service) -> None:
    """Columns, and pyarrow with them, are not made for one that asks for objects."""
    reading = batcher(service)
    service.pages = [page(aggregated(1, 2)), page(aggregated(2, 2))]
    assert take(reading) == [b"0", b"1"]
    second = reading.take()
    assert second is not None
    assert len(second) == 2
    assert second._rows._columns is None


def test_a_record_that_is_not_unpacked_is_delivered_again_as_a_whole(service: Service) -> None:
    """A worker that unpacks has processed a part of it."""
    half_done = aggregated(1, 3)
    for unpacks, expected in ((True, [b"2", b"9"]), (False, [half_done.data, b"9"])):
        start = AfterRecord("1", sub_sequence_number=1)
        reading = batcher(service, start=start, deaggregate=unpacks)
        service.pages = [page(half_done, record(9))]
        assert take(reading) == expected


def test_more_records_fit_into_a_batch_that_is_not_unpacked(service: Service) -> None:
    counts = []
    for unpacks in (True, False):
        budget = MemoryBudget(64 * 20_000)
        Account(budget).ask(1).force(64 * 20_000)
        blobs = [b.data for b in aggregate([("k", None, bytes(40))] * 400, max_size=500)]
        records = [msgspec.structs.replace(record(n), data=data) for n, data in enumerate(blobs)]
        reading = batcher(service, memory=budget, deaggregate=unpacks)
        size = sum(map(len, blobs))
        whole = Fetched(Page(records, "next", 10), size, NOW_MS)
        service.pages = [FetchedPage(whole, False, WORKER_CLOCK)]
        reading.take()
        rest = reading._cutter.rest_of_page
        counts.append(len(records) - (0 if rest is None else len(rest.records)))
    assert 0 < counts[0] < counts[1]


class Watched(list[Record]):
    """The records of a page; counts how often all of them are looked at."""

    passes = 0

    def __iter__(self) -> Iterator[Record]:
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("unpacks", [True, False])
def test_records_are_looked_at_once_until_they_are_asked_for(
    service: Service, *, unpacks: bool
) -> None:
    records = Watched(record(n + 1) for n in range(10))
    plain = page(*records)
    watched = msgspec.structs.replace(plain.fetched.page, records=records)
    fetched = msgspec.structs.replace(plain.fetched, page=watched)
    service.pages = [msgspec.structs.replace(plain, fetched=fetched)]
    reading = batcher(service, deaggregate=unpacks)
    records.passes = 0
    batch = reading.take()
    assert batch is not None
    assert (len(batch), batch.last.sequence_number) == (10, "10")
    assert records.passes == (1 if unpacks else 0)


def test_aggregates_among_plain_records_are_unpacked_wherever_a_page_is_cut(
    service: Service,
) -> None:
    budget = MemoryBudget(64 * 20_000)
    Account(budget).ask(1).force(64 * 20_000)
    mixed = [record(n) if n % 5 else aggregated(n, 3) for n in range(100)]
    service.pages = [page(*mixed)]
    reading = batcher(service, memory=budget)
    found: list[list[bytes]] = []
    while reading._cutter.rest_of_page is not None or not found:
        found.append(take(reading) or [])
    expected = [[b"%d" % n] if n % 5 else [b"0", b"1", b"2"] for n in range(100)]
    assert len(found) > 2, "the page was cut"
    assert [*chain(*found)] == [*chain(*expected)]


def test_of_a_page_only_what_is_delivered_is_unpacked_and_counted(service: Service) -> None:
    budget = MemoryBudget(DEFAULT_HELD_BYTES)
    reading = batcher(service, memory=budget, skip_older_than=60)
    service.next_from = WORKER_CLOCK + 1
    arrived = NOW_MS / 1000 - 100
    old = replace(record(1), data=bytes(10_000), approximate_arrival_timestamp=arrived)
    old_aggregate = replace(aggregated(1, 9), approximate_arrival_timestamp=arrived)
    service.pages = [
        page(old, aggregated(2, 2)),
        page(old_aggregate, record(3), record(4)),
        page(old, record(5), record(6)),
        page(record(5), record(6)),
    ]
    assert take(reading) == [b"0", b"1"]
    found = [(take(reading), budget.held) for _ in range(3)]
    assert [data for data, _ in found] == [[b"3", b"4"], [b"5", b"6"], [b"5", b"6"]]
    assert len({held for _, held in found}) == 1


def test_a_batch_of_aggregates_holds_what_its_user_records_take(service: Service) -> None:
    budget = MemoryBudget(DEFAULT_HELD_BYTES)
    reading = batcher(service, memory=budget)
    (packed,) = aggregate([("k", None, bytes(1_000))] * 10)
    held = []
    for number in (1, 2):
        service.pages = [page(replace(record(number), data=packed.data))]
        assert len(take(reading) or ()) == 10
        held.append(budget.held)
    assert held[0] == held[1]
    assert 2 * 10_000 < held[0] < 3 * 10_000, "before it is opened, 14 times its size"


def test_before_the_first_page_behind_a_start_no_figure_is_known(service: Service) -> None:
    reading = batcher(service)
    service.pages = [page(record(1))]
    assert take(reading) == [b"1"]
    assert reading.last_page.millis_behind_latest == 10
    reading.begin(TRIM_HORIZON)
    assert reading.last_page.millis_behind_latest is None


def of_kpl(number: int, *places: int) -> Record:
    """An aggregate of a KPL, whose user records have these hash keys."""
    (packed,) = aggregate([("k", str(place), b"%d" % place) for place in places])
    return msgspec.structs.replace(record(number), data=packed.data, partition_key="a")


def test_what_is_dropped_is_asked_for_once_behind_the_fetch_of_its_page(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream's strategy may have changed a moment before a page was fetched, not after it."""
    caplog.set_level("INFO")
    tally = Tally()
    reading = batcher(service, reshard_range=(0, 9), hash_range_filter=True, metrics=tally)
    service.pages = [
        page(record(1), of_kpl(2, 10, 3), waited=2.0),
        page(of_kpl(3, 0, 10), waited=2.0),
        page(of_kpl(4, 9, 10, 11), waited=1.0),
    ]
    assert [take(reading) for _ in range(3)] == [[b"1", b"10", b"3"], [b"0"], [b"9"]]
    assert (service.described, reading.dropped) == (1, 3)
    service.pages = [page(of_kpl(5, 1, 10)), page(of_kpl(6, 2))]
    assert [take(reading) for _ in range(2)] == [[b"1"], [b"2"]]
    assert (service.described, reading.dropped) == (2, 4)
    assert [(one.metric, one.value) for one in tally.series()] == [("records.filtered", 4)]
    assert f"Dropped 2 user records of aggregates outside of the hash range of shard {SHARD}" in (
        caplog.text
    )


def test_the_filter_works_however_young_the_workers_clock_is(service: Service) -> None:
    service.now = 0.0
    reading = batcher(service, reshard_range=(0, 9), hash_range_filter=True)
    service.pages = [page(of_kpl(1, 0, 10), waited=WORKER_CLOCK)]
    assert take(reading) == [b"0"]
    assert service.described == 1


def test_an_answer_holds_for_what_was_fetched_before_the_question_was_asked(
    service: Service,
) -> None:
    reading = batcher(service, reshard_range=(0, 9), hash_range_filter=True)
    service.takes = 9.0
    service.pages = [page(of_kpl(1, 0, 10), waited=1.0), page(of_kpl(2, 0, 10), waited=-1.0)]
    assert [take(reading) for _ in range(2)] == [[b"0"], [b"0"]]
    assert service.described == 2


def test_a_question_that_fails_is_asked_again(service: Service) -> None:
    reading = batcher(service, reshard_range=(0, 9), hash_range_filter=True)
    service.pages = [page(of_kpl(1, 0, 10), end=True, waited=1.0)] * 2
    service.describing = ServiceError("throttled")
    with pytest.raises(ServiceError):
        reading.take()
    assert reading.end is None
    service.describing = None
    assert take(reading) == [b"0"]
    assert (service.described, reading.dropped) == (2, 1)


def test_nothing_is_dropped_for_a_minute_once_the_stream_distributes_records(
    service: Service,
) -> None:
    reading = batcher(service, reshard_range=(0, 9), hash_range_filter=True)
    service.distributes = True
    for now, asked in ((0.0, 1), (59.0, 1), (60.0, 2)):
        service.now = WORKER_CLOCK + now
        service.pages = [page(of_kpl(1, 0, 10), waited=-now)]
        assert take(reading) == [b"0", b"10"]
        assert (service.described, reading.dropped) == (asked, 0)
    # What waited for that minute is asked for as well.
    service.now += 60.0
    service.pages = [page(of_kpl(2, 0, 10), waited=1.0)]
    assert take(reading) == [b"0", b"10"]
    assert (service.described, reading.dropped) == (3, 0)


@pytest.mark.parametrize(("reshard_range", "on"), [(None, True), ((0, 9), False)])
def test_only_the_filter_drops_and_only_in_a_shard_of_a_reshard(
    service: Service, reshard_range: tuple[int, int] | None, *, on: bool
) -> None:
    reading = batcher(service, reshard_range=reshard_range, hash_range_filter=on)
    service.pages = [page(of_kpl(1, 0, 10))]
    assert take(reading) == [b"0", b"10"]
    assert (service.described, reading.dropped) == (0, 0)
