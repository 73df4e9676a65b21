"""Fetching ahead: how much, how fast, and what becomes of errors."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import pytest
from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.stream.page import Fetched, Page, Record, split_page
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, Position
from sparkinesis.worker.options import DEFAULT_OPTIONS, AheadLimits
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchRequest
from sparkinesis.worker.retrieval.memory import (
    RECORD_OVERHEAD,
    WHOLE_PAGE,
    Account,
    Hold,
    MemoryBudget,
    page_memory,
    response_memory,
)
from sparkinesis.worker.retrieval.polling import PolledShard
from sparkinesis.worker.retrieval.step_pool import StepPool, Work

PATIENCE = 30.0
MIB = 1_048_576
LIMITS = DEFAULT_OPTIONS.ahead


def page(count: int = 1, behind: int = 1, size: int = 100) -> Fetched:
    records = [Record(data=b"x", partition_key="k", sequence_number="1") for _ in range(count)]
    return Fetched(Page(records, "next", behind, None), size, 0)


class Script:
    """A cursor that answers as written, then says that there is no more; counts its calls."""

    def __init__(self, *answers: Fetched | Exception, ends: bool = False) -> None:
        self.limits: list[int] = []
        self.at_end = False
        self._answers = list(answers)
        self._ends = ends

    def due_in(self) -> float:
        return 0.0

    def fetch(self, limit: int) -> Fetched:
        self.limits.append(limit)
        answer = self._answers.pop(0) if self._answers else page(0, 0)
        if isinstance(answer, Exception):
            raise answer
        self.at_end = self._ends and not self._answers
        return answer


class Taker:
    """Stands for the work of a consumer; notes that it is woken."""

    def __init__(self, on_page: Callable[[], object]) -> None:
        self._on_page = on_page

    def wake(self, by: Work) -> None:
        del by
        self._on_page()


class Reader:
    """A fetching ahead, and a count of what it announced.

    cursor: polled; or a function that opens another source.
    """

    def __init__(
        self,
        cursor: Any,
        idle_time: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
        max_records: int = 7,
        on_page: Callable[[], None] | None = None,
        *,
        memory: Account | None = None,
        limits: AheadLimits = LIMITS,
        announce_silence: bool = False,
        next_after: float = 0.0,
        start: Position = TRIM_HORIZON,
    ) -> None:
        self._announced = threading.Semaphore(0)

        def poll() -> PolledShard:
            return PolledShard(cursor, max_records=max_records, idle_time=idle_time, clock=clock)

        request = FetchRequest(
            "shardId-000000000000",
            start,
            inclusive=False,
            memory=memory or Account(MemoryBudget(2**30)),
            taker=cast(Any, Taker(on_page or self._announced.release)),
            pool=StepPool("test"),
            announce_silence=announce_silence,
        )
        source = cursor if callable(cursor) else poll
        self.fetching = FetchAhead(request, source, limits, clock, next_after).start()

    def wait(self, pages: int) -> None:
        for _ in range(pages):
            assert self._announced.acquire(timeout=PATIENCE)


Read: TypeAlias = Callable[..., Reader]


@pytest.fixture
def read() -> Any:
    readers: list[Reader] = []

    def make(cursor: Any, **given: Any) -> Reader:
        readers.append(Reader(cursor, **given))
        return readers[-1]

    yield make
    for reader in readers:
        reader.fetching.stop()


@pytest.mark.parametrize(
    ("answers", "fetched"),
    [
        ([page()] * 20, LIMITS.pages),
        ([page(size=LIMITS.bytes // 2)] * 20, 2),
        ([page(count=LIMITS.records // 2)] * 20, 2),
        ([page(size=LIMITS.bytes)] * 20, 1),
    ],
    ids=["pages", "bytes", "records", "one large page"],
)
def test_no_more_is_fetched_ahead_than_the_limits_say(
    read: Read, answers: list[Fetched], fetched: int
) -> None:
    cursor = Script(*answers)
    reader = read(cursor)
    reader.wait(fetched)
    assert cursor.limits == [7] * fetched
    # Each page that is taken makes room for one.
    for n in range(1, 4):
        taken = reader.fetching.take()
        assert taken is not None
        reader.wait(1)
        assert len(cursor.limits) == fetched + n


def test_an_error_is_raised_behind_the_pages_that_came_before(read: Read) -> None:
    error = ServiceError("no")
    reader = read(Script(page(), error))
    reader.wait(2)
    assert reader.fetching.take() is not None
    for _ in range(2):
        with pytest.raises(ServiceError) as raised:
            reader.fetching.take()
        assert raised.value is error


@pytest.mark.parametrize("error", [ServiceError("no iterator"), SystemExit("a bug")], ids=str)
def test_what_opening_raises_is_raised_too(read: Read, error: BaseException) -> None:
    """Also what nobody expects: a shard must not stand still without a word."""

    def refuse() -> Any:
        raise error

    reader = read(refuse)
    reader.wait(1)
    with pytest.raises(type(error), match=str(error)):
        reader.fetching.take()


def test_it_idles_at_the_tip_only(read: Read) -> None:
    """An empty page is no tip while the shard is behind, nor is one that is full."""
    cursor = Script(page(0, behind=9), page(7, behind=0), page(1, behind=0), page())
    read(cursor).wait(3)
    assert len(cursor.limits) == 3, "the fourth comes after the idle time, an hour"


def test_stopping_ends_an_idle_time_at_once(read: Read) -> None:
    reader = read(Script(page(0, 0)))
    reader.wait(1)
    reader.fetching.stop()
    reader.wait(1)  # the last word of its thread
    assert reader.fetching.take() is None


class Pushed:
    """A source that waits for an event until it is stopped."""

    at_end = False
    wanted = 1_000_000
    is_divisible = False

    def __init__(self) -> None:
        self.is_waiting = threading.Event()
        self.stopped = threading.Event()

    def fetch(self, room: int) -> Fetched | None:
        self.is_waiting.set()
        assert self.stopped.wait(PATIENCE)
        return None

    def due_in(self, wake: Callable[[], None]) -> float:
        del wake
        return 0.0

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        del count
        return fetched

    def stop(self) -> None:
        self.stopped.set()


def test_stopping_stops_a_source_that_waits(read: Read) -> None:
    source = Pushed()
    reader = read(lambda: source)
    assert source.is_waiting.wait(PATIENCE)
    reader.fetching.stop()
    reader.wait(1)  # the last word of its thread
    assert reader.fetching.take() is None


def test_a_source_that_is_opened_too_late_is_stopped_unread(read: Read) -> None:
    """As when a lease is lost while the consumer is being registered."""
    source, go_on = Pushed(), threading.Event()

    def open_late() -> Pushed:
        assert go_on.wait(PATIENCE)
        return source

    reader = read(open_late)
    reader.fetching.stop()
    go_on.set()
    reader.wait(1)
    assert source.stopped.is_set()
    assert not source.is_waiting.is_set()


def test_a_source_that_fails_is_let_go_of(read: Read) -> None:
    class Failing(Pushed):
        def fetch(self, room: int) -> Fetched | None:
            raise ServiceError("no")

    source = Failing()
    read(lambda: source).wait(1)
    assert source.stopped.is_set()


def test_the_next_may_begin_a_while_after_the_first_page(read: Read) -> None:
    """A subscription that had to wait for its turn is young when its first page comes."""
    now = [100.0]

    class Subscription(Pushed):
        def fetch(self, room: int) -> Fetched | None:
            now[0] += 7.0
            return page()

    reader = read(Subscription, clock=lambda: now[0], next_after=5.0)
    reader.wait(LIMITS.pages)
    assert reader.fetching.next_from == 112.0


def sized(count: int, each: int, behind: int = 1) -> Fetched:
    records = [
        Record(data=bytes(each), partition_key="", sequence_number=str(number + 1))
        for number in range(count)
    ]
    return Fetched(Page(records, "next", behind, None), count * each, 0)


class Divisible(Script):
    """Gives pages of as many records as it is asked for, of a size that may change."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self._sizes = list(sizes)
        self.kept: list[int] = []

    def fetch(self, limit: int) -> Fetched:
        super().fetch(limit)
        return sized(limit, self._sizes.pop(0) if len(self._sizes) > 1 else self._sizes[0])

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        self.kept.append(count)
        return split_page(fetched, count)[0]


def crowded(mib: int = 64) -> tuple[MemoryBudget, Hold]:
    """A budget that others have used up; the second is what they hold."""
    budget = MemoryBudget(mib * MIB)
    others = Account(budget).ask(1)
    others.force(mib * MIB)
    return budget, others


def test_a_page_is_asked_for_that_fits_into_the_memory_that_is_left() -> None:
    """The first is of one record, as its size is not known; then of as many as fit."""
    budget, others = crowded()
    cursor = Divisible(1_000)
    source = PolledShard(cast(Any, cursor), max_records=10_000, idle_time=0.0, clock=lambda: 0.0)
    hold = Account(budget).ask(source.wanted)
    assert source.fetch(hold.size) is not None
    hold.release()
    room = Account(budget).ask(source.wanted).size
    assert room == budget.floor == MIB
    assert source.fetch(room) is not None
    assert cursor.limits == [1, MIB // response_memory(1_000, 1)]
    others.release()
    assert source.fetch(Account(budget).ask(source.wanted).size) is not None
    assert cursor.limits[2] > 20 * cursor.limits[1]


def test_at_the_tip_no_more_memory_is_asked_for_than_a_shard_takes_until_then() -> None:
    now = [0.0]
    cursor = Script(sized(10, 1_000, behind=0))
    source = PolledShard(cast(Any, cursor), max_records=10_000, idle_time=1.0, clock=lambda: now[0])
    whole = source.wanted
    assert whole == WHOLE_PAGE
    assert source.fetch(whole) is not None
    now[0] = 1.0
    assert source.wanted == response_memory(2 * MIB, 2_000), "of a second, and one more"
    now[0] = 100.0
    assert source.wanted == WHOLE_PAGE


def test_fetching_waits_for_memory_and_goes_on_as_it_becomes_free(read: Read) -> None:
    budget, others = crowded()
    cursor = Divisible(1_000)
    reader = read(cursor, memory=Account(budget))
    reader.wait(1)
    assert budget.held > budget.limit, "a shard that has nothing is not kept waiting"
    # One page of a record is there, and no memory for another one.
    others.release()
    reader.wait(1)
    assert len(cursor.limits) > 1


def test_a_shard_that_idles_holds_nothing_meanwhile(read: Read) -> None:
    """A thousand of them would leave nothing for the busy ones."""
    budget = MemoryBudget(64 * MIB)
    reader = read(Script(page(1, 0)), memory=Account(budget), idle_time=3600.0)
    reader.wait(1)
    taken = reader.fetching.take()
    assert taken is not None
    taken.release()
    assert not budget.held


def test_a_page_that_turns_out_too_large_is_kept_in_part(read: Read) -> None:
    """The first record was small, and those behind it are not."""
    budget, _ = crowded()
    cursor = Divisible(10, 100_000)
    reader = read(cursor, memory=Account(budget), max_records=10_000)
    reader.wait(1)
    first = reader.fetching.take()
    assert first is not None
    first.release()
    reader.wait(1)
    second = reader.fetching.take()
    assert second is not None
    assert cursor.kept == [MIB // (100_000 + RECORD_OVERHEAD)]
    assert len(second.fetched.page.records) == cursor.kept[0] < cursor.limits[1]
    assert second.hold is not None
    assert second.hold.size <= MIB


def test_stopping_ends_a_wait_for_memory_and_gives_all_back(read: Read) -> None:
    budget, others = crowded()
    reader = read(Divisible(1_000), memory=Account(budget), idle_time=0.0)
    reader.wait(1)
    assert budget.held > others.size
    reader.fetching.stop()
    reader.wait(1)  # the last word of its thread
    assert budget.held == others.size


@pytest.mark.parametrize("how", ["fails", "is to be tried again"])
def test_memory_of_a_fetch_that_gives_nothing_comes_back(read: Read, how: str) -> None:
    budget, announced = MemoryBudget(64 * MIB), threading.Event()

    class Nothing(Pushed):
        has_fetched = False

        def due_in(self, wake: Callable[[], None]) -> float:
            del wake
            if self.has_fetched:
                announced.set()
            return math.inf if self.has_fetched else 0.0

        def fetch(self, room: int) -> Fetched | None:
            self.has_fetched = True
            if how == "fails":
                raise ServiceError("no")
            return None

    read(Nothing, on_page=announced.set, memory=Account(budget), clock=lambda: 0.0)
    assert announced.wait(PATIENCE)
    assert budget.most_held
    assert not budget.held


def test_an_event_is_not_divided_and_the_next_one_waits_until_it_fits(read: Read) -> None:
    class Events(Pushed):
        given = 0

        def fetch(self, room: int) -> Fetched | None:
            self.given += 1
            return sized(1_000, 1_000)

    budget, others = crowded()
    others.force(60 * MIB)
    source = Events()
    reader = read(lambda: source, memory=Account(budget))
    reader.wait(1)
    event = reader.fetching.take()
    assert event is not None
    assert event.hold is not None
    assert event.hold.size == page_memory(event.fetched) > budget.floor
    assert source.given == 1, "for the next one there is no memory"
    others.release()
    reader.wait(1)


def silence(at: int) -> Fetched:
    """An empty page at the tip, of a time by the service's clock."""
    return Fetched(Page([], "next", 0, None), 0, at)


@pytest.mark.parametrize("all_count", [False, True])
def test_of_a_silence_the_first_page_is_announced_and_the_latest_is_kept(
    read: Read, all_count: bool
) -> None:
    """A thousand idle shards would wake their consumers a thousand times a second for nothing."""
    announced: list[int] = []
    budget = MemoryBudget(64 * MIB)
    cursor = Script(page(), silence(1), silence(2), silence(3), page(), silence(4), ends=True)
    has_ended = threading.Semaphore(0)

    def note() -> None:
        announced.append(len(cursor.limits))
        has_ended.release()

    limits = replace(LIMITS, pages=6)
    fetching = read(
        cursor,
        idle_time=0.0,
        on_page=note,
        memory=Account(budget),
        limits=limits,
        announce_silence=all_count,
    ).fetching
    for _ in range(7 if all_count else 5):
        assert has_ended.acquire(timeout=PATIENCE)
    # The last one is that of the end.
    assert announced == ([1, 2, 3, 4, 5, 6, 6] if all_count else [1, 2, 5, 6, 6])
    pages = [page_ for page_ in iter(fetching.take, None) if page_ is not None]
    for each in pages:
        each.release()
    assert not budget.held, "pages that were replaced hold nothing"
    taken = [each.service_time_ms for each in pages]
    assert taken == ([0, 1, 2, 3, 0, 4] if all_count else [0, 3, 0, 4])


@pytest.mark.parametrize("all_count", [False, True])
def test_a_silence_that_nobody_takes_keeps_no_record_from_being_fetched(
    read: Read, all_count: bool
) -> None:
    """Unless the processor gets each page, and so must keep up with them."""
    cursor = Script(silence(1), silence(2), silence(3), page(), page())
    limits = replace(LIMITS, pages=1)
    reader = read(cursor, idle_time=0.0, limits=limits, announce_silence=all_count)
    reader.wait(1 if all_count else 2)
    assert len(cursor.limits) == (1 if all_count else 4)
    taken = reader.fetching.take()
    assert taken is not None
    assert taken.service_time_ms == (1 if all_count else 3)


@pytest.mark.parametrize(
    ("idle_time", "shards", "ends", "calls"),
    [
        (1.0, 1000, 7.002, [8.0, 9.0, 10.0]),
        (1.0, 1000, 7.02, [8.0, 9.0, 10.0]),
        (1.0, 1000, 7.06, [8.05, 9.05, 10.05]),
        (1.0, 32, 7.03, [8.0, 9.0, 10.0]),
        (1.0, 32, 7.6, [8.0, 9.0, 10.0]),
        (1.0, 32, 7.8, [9.0, 10.0, 11.0]),
        (1.0, 100, 7.56, [8.5, 9.5, 10.5]),
        (2.0, 500, 7.21, [9.2, 11.2, 13.2]),
        (0.25, 32, 7.01, [7.25, 7.5, 7.75]),
        (0.2, 32, 7.01, [7.2, 7.4, 7.6]),
        (0.2, 32, 7.06, [7.25, 7.45, 7.65]),
        (0.09, 32, 7.01, [7.1, 7.192, 7.284]),
    ],
)
def test_idle_shards_are_polled_together(
    idle_time: float, shards: int, ends: float, calls: list[float]
) -> None:
    """Each at its own pace, in the slots that all have: calls take 2 ms here."""
    now = [ends]
    cursor = Script(*map(silence, range(10)))
    shard = PolledShard(
        cast(Any, cursor),
        max_records=7,
        idle_time=idle_time,
        clock=lambda: now[0],
        shards=lambda: shards,
    )
    assert shard.fetch(MIB) is not None
    for expected in calls:
        now[0] += shard.due_in(lambda: None)
        assert now[0] == pytest.approx(expected)
        now[0] += 0.002
        assert shard.fetch(MIB) is not None


def test_the_arrival_of_the_first_record_that_waits_and_of_the_last_page(read: Read) -> None:
    """A record of an unknown arrival is as old as the page is behind, at least."""
    one = read(Script(page(behind=5_000), page(0, 0)), clock=lambda: 100.0)
    one.wait(2)
    waiting = one.fetching.waiting
    assert (waiting.oldest_at, waiting.heard_at) == (95.0, 100.0)
    assert one.fetching.take() is not None
    assert (waiting.oldest_at, waiting.heard_at) == (None, 100.0), "a silence"


def test_the_record_of_the_start_does_not_wait(read: Read) -> None:
    one = read(Script(page(2)), clock=lambda: 100.0, start=AfterRecord("1"))
    one.wait(1)
    assert one.fetching.waiting.oldest_at is None
