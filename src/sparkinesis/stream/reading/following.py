"""Follows a stream: the pages of all its shards as they come, parents before their children."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass

from sparkinesis.errors import OptionError, SparkinesisError, listed
from sparkinesis.stream.address import shown
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched, Record, shard_of
from sparkinesis.stream.position import LATEST, AfterRecord, AtTimestamp, InitialPosition
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.shard import Lineage, Shard

TIP_PAUSE = 1.0
"""Seconds between two calls on a shard without new records."""
_CALLS_AT_A_TIME = 8
"""The most pages in hand, of up to 10 MB each."""
_CLOCK_STEP_MS = 1000
"""The service may return its clock in whole seconds, rounded down."""


@dataclass(frozen=True)
class ShardPage:
    """The next records of a shard, at least one."""

    shard_id: str
    records: Sequence[Record]
    parents: tuple[str, ...] = ()
    """The shards of which a split or a merge made this one, as far as they are listed."""


class ReadingOrder:
    """The order of shards: a child may be read once all its listed parents have ended."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self.lineage = Lineage.of(shards)
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def begin(self) -> list[str]:
        """Return the shards that may be read from now on, each once, in order."""
        ready = [
            shard_id
            for shard_id in sorted(self.lineage.shards)
            if shard_id not in self._begun
            and self._ended.issuperset(self.lineage.listed_parents(shard_id))
        ]
        self._begun.update(ready)
        return ready

    def end(self, shard_id: str, new: Iterable[Shard]) -> None:
        """Record that all records of a shard have been read, and that there are new shards."""
        self._ended.add(shard_id)
        self.lineage = self.lineage.with_children(new)


def cut_after(records: Sequence[Record], last_ms: int | None) -> tuple[Sequence[Record], bool]:
    """Return the records that arrived by an instant (epoch ms), and whether later ones follow."""
    if last_ms is not None:
        for number, record in enumerate(records):
            if (record.arrived_ms or 0) > last_ms:
                return records[:number], True
    return records, False


def is_at_tip(fetched: Fetched) -> bool:
    """Return True if a page ends at the newest record of its shard."""
    behind = fetched.page.millis_behind_latest
    return not behind and (behind == 0 or not fetched.page.records)


def follow(
    client: StreamClient,
    start: InitialPosition | AfterRecord,
    *,
    only: Collection[str] = (),
    ends: bool = False,
    pace: Pace = Pace(),  # noqa: B008 - a value
    clock: Callable[[], float] = time.monotonic,
) -> Generator[ShardPage, None, None]:
    """Yield the records of all shards after ``start``, each shard in order, while the caller asks.

    LATEST is the service's time of the first call. An `AfterRecord` is read from its record on.
    only: the shards to read, without their children; none: all. ends: stop after the records that
    are there at that time. pace: of the calls on each shard; by default a third of
    what the service accepts, so that others have room. No page is fetched beyond those in hand
    while the caller is busy.

    Raises `OptionError` for a shard that is not there, and the errors of `StreamClient`.
    """
    shards, now_ms = client.list_shards_created(
        at=LATEST if start is LATEST and not only else None,
        since=start if isinstance(start, AtTimestamp) and not only else None,
    )
    if only:
        shards = _named(only, shards, client)
    if start is LATEST:
        start = AtTimestamp(now_ms)
    order = ReadingOrder(shards)
    last_ms = now_ms + _CLOCK_STEP_MS if ends else None
    calls = _Calls()
    cursors: dict[str, ShardCursor] = {}
    due: list[tuple[float, str]] = []

    def begin() -> None:
        for one in order.begin():
            cursors[one] = ShardCursor(client, ShardBudget(pace, clock), one, start, inclusive=True)
            heapq.heappush(due, (clock(), one))

    try:
        begin()
        while due or calls.running:
            while due and calls.has_room and due[0][0] <= clock():
                _, shard_id = heapq.heappop(due)
                calls.start(shard_id, cursors[shard_id].fetch)
            wait = due[0][0] - clock() if due and calls.has_room else None
            answer = calls.next(wait)
            if answer is None:
                continue
            shard_id, fetched = answer
            records, is_over = cut_after(fetched.page.records, last_ms)
            if records:
                yield ShardPage(shard_id, records, order.lineage.listed_parents(shard_id))
            cursor = cursors[shard_id]
            if cursor.at_end and not is_over:
                since = start if isinstance(start, AtTimestamp) else None
                new = () if only else new_shards(client, fetched, order.lineage, since)
                order.end(shard_id, new)
                del cursors[shard_id]
                begin()
            elif not (ends and (is_over or is_at_tip(fetched))):
                pause = TIP_PAUSE if is_at_tip(fetched) else 0.0
                heapq.heappush(due, (clock() + max(pause, cursor.due_in()), shard_id))
    finally:
        calls.stop()


def _named(names: Collection[str], shards: Sequence[Shard], client: StreamClient) -> list[Shard]:
    missing = set(names).difference(shard.id for shard in shards)
    if missing:
        raise OptionError(
            f"There is no {listed(map(shown, sorted(missing)))} in {client.address}. It has: "
            f"{listed(shard.id for shard in shards)}. `sparkinesis shards` shows all of them."
        )
    return [shard for shard in shards if shard.id in names]


def new_shards(
    client: StreamClient, fetched: Fetched, lineage: Lineage, since: AtTimestamp | None
) -> Sequence[Shard]:
    """Return the children that the last page of a shard names, and other shards that are new.

    Calls ListShards if the page names none, as on other servers, or if a child has a parent that is
    not listed yet: the end of the parent's own parent is still to be read.
    """
    named = [shard_of(child) for child in fetched.page.child_shards or ()]
    if named and not Lineage.of([*lineage.shards.values(), *named]).unlisted_parents(
        child.id for child in named
    ):
        return named
    shards, _ = client.list_shards(since=since)
    return [*named, *shards]


class _Calls:
    """Threads that fetch pages. They are daemons: the program's end does not wait for an answer."""

    def __init__(self) -> None:
        self.running = 0
        self._threads = 0
        self._jobs: queue.SimpleQueue[tuple[str, Callable[[], Fetched]] | None] = (
            queue.SimpleQueue()
        )
        self._answers: queue.SimpleQueue[tuple[str, Fetched | SparkinesisError]] = (
            queue.SimpleQueue()
        )

    @property
    def has_room(self) -> bool:
        return self.running < _CALLS_AT_A_TIME

    def start(self, shard_id: str, fetch: Callable[[], Fetched]) -> None:
        if self._threads == self.running:
            self._threads += 1
            threading.Thread(target=self._run, name="follow", daemon=True).start()
        self.running += 1
        self._jobs.put((shard_id, fetch))

    def next(self, timeout: float | None) -> tuple[str, Fetched] | None:
        """Wait ``timeout`` seconds at most for an answer; None: there is none. Raises its error."""
        try:
            shard_id, answer = self._answers.get(
                timeout=None if timeout is None else max(0, timeout)
            )
        except queue.Empty:
            return None
        self.running -= 1
        if isinstance(answer, BaseException):
            raise answer
        return shard_id, answer

    def stop(self) -> None:
        for _ in range(self._threads):
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            shard_id, fetch = job
            try:
                self._answers.put((shard_id, fetch()))
            except BaseException as error:  # noqa: BLE001 - raised by `next`
                self._answers.put((shard_id, error))  # type: ignore[arg-type]
