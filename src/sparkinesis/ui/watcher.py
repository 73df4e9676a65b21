"""Takes snapshots of an application in a thread of its own, for all browsers that show it.

The records and failures of workers are not in the lease table, but in their reports. A fleet hands
them on; other workers are asked for their ``/status``, as ``--worker`` names them.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec
import urllib3

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.monitor.chosen_streams import shown_names
from sparkinesis.monitor.lease_monitor import LeaseMonitor
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.status import Failure
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View, total
from sparkinesis.worker.reporting.failures import merge

if TYPE_CHECKING:
    from sparkinesis.status import FleetStatus


_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reported:
    """The reports of all workers that were asked, at one moment."""

    worker_rates: Mapping[str, float | None] = field(default_factory=lambda: _NOTHING)
    """Records per second by worker id; None if not known yet."""
    shard_rates: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    """Records per second by lease key."""
    worker_notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    failures: tuple[Failure, ...] = ()
    """The latest last."""
    messages: tuple[str, ...] = ()
    """Most important first."""


NOTHING_REPORTED = Reported()


def of_fleet(status: FleetStatus) -> Reported:
    """Return the reports of a fleet's workers, which its driver has."""
    messages = [f"The fleet has failed: {status.error}"] if status.error else []
    if status.waiting:
        messages.append(f"{status.waiting} of {status.wanted} workers wait for Spark to start.")
    messages += [f"{one.name}: {one.problem}" for one in status.streams if one.problem]
    return Reported(
        {one.worker_id: one.records_per_second for one in status.workers},
        {one.lease: one.records_per_second for one in status.shards},
        {one.worker_id: one.problem or one.state.value for one in status.workers},
        status.failures,
        (*messages, *reversed(status.notes)),
    )


class StatusShard(msgspec.Struct, frozen=True):
    """One shard of a worker's ``/status``."""

    lease: str
    records: int = 0


class StatusStream(msgspec.Struct, frozen=True):
    """One stream of a worker's ``/status``."""

    stream: str
    problem: str | None = None


class _WorkerSays(msgspec.Struct, frozen=True):
    """A worker's ``/status``; it may have more, which the page does not show."""

    worker: str
    application: str = ""
    shards: tuple[StatusShard, ...] = ()
    streams: tuple[StatusStream, ...] = ()
    failures: tuple[Failure, ...] = ()
    problem: str | None = None


def read_status(text: bytes) -> _WorkerSays:
    """Read the answer of ``/status``. Raises ValueError if it is none."""
    try:
        return msgspec.json.decode(text, type=_WorkerSays)
    except msgspec.DecodeError as error:
        raise ValueError(f"the answer is no worker's status: {error}") from None


def shard_rates(
    before: Mapping[str, int], after: Mapping[str, int], seconds: float
) -> dict[str, float]:
    """Return records per second by lease key, by two counts of a worker's records.

    A count that fell began anew: the worker lost the shard, and took it again.
    """
    if seconds <= 0:
        return {}
    return {
        key: (records - before[key] if records >= before[key] else records) / seconds
        for key, records in after.items()
        if key in before
    }


@dataclass(frozen=True, slots=True)
class StatusReply:
    """The answer of one worker, or its error."""

    url: str
    says: _WorkerSays | None
    """None: it did not answer."""
    rates: Mapping[str, float] | None = None
    """Records per second by lease key; None until its second answer."""
    error: str = ""


def of_answers(answers: Iterable[StatusReply]) -> Reported:
    """Return the reports of workers that were asked one by one."""
    workers: dict[str, float | None] = {}
    shards: dict[str, float] = {}
    notes: dict[str, str] = {}
    failures = []
    messages = []
    for one in answers:
        if one.says is None:
            messages.append(f"The worker at {one.url} does not tell its status: {one.error}.")
            continue
        says = one.says
        workers[says.worker] = None if one.rates is None else sum(one.rates.values())
        shards.update(one.rates or {})
        if says.problem:
            notes[says.worker] = says.problem
            messages.append(f"{says.worker}: {says.problem}")
        messages += [f"{says.worker}: {each.problem}" for each in says.streams if each.problem]
        failures.append(says.failures)
    return Reported(workers, shards, notes, merge(failures), tuple(dict.fromkeys(messages)))


_TIMEOUT = urllib3.Timeout(connect=1.0, read=3.0)
_LONGEST = 32 * 1024 * 1024
"""Bytes of an answer: a worker of 10,000 shards has some 3 MB."""
_AT_ONCE = 16


def status_url(text: str) -> str:
    """Return the address of a worker's ``/status``. Raises `OptionError`.

    ``text``: the worker's address, with or without the path.
    """
    parts = urlsplit(text if "//" in text else f"//{text}", scheme="http")
    try:
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address or parts.path not in {"", "/", "/status"} or "@" in parts.netloc:
        raise OptionError(
            f"--worker is {text!r}; it takes the address at which a worker serves its status, such "
            "as http://127.0.0.1:9400."
        )
    return urlunsplit((parts.scheme, parts.netloc, "/status", "", ""))


class WorkerUrls:
    """Workers that are asked over HTTP. Not for several threads."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._urls = [status_url(url) for url in urls]
        self._clock = clock
        self._http = urllib3.PoolManager(maxsize=2, retries=False, timeout=_TIMEOUT)
        self._before: dict[str, tuple[float, dict[str, int]]] = {}

    def ask(self) -> Reported:
        """Ask all workers at once. Raises nothing: `Reported.messages` says which fail."""
        if not self._urls:
            return of_answers(())
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._urls)), "ask-worker") as pool:
            return of_answers(pool.map(self._ask, self._urls))

    def _ask(self, url: str) -> StatusReply:
        try:
            says = self._get(url)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            self._before.pop(url, None)
            return StatusReply(url, None, error=str(error))
        now, counts = self._clock(), {one.lease: one.records for one in says.shards}
        before = self._before.get(url)
        self._before[url] = now, counts
        rates = None if before is None else shard_rates(before[1], counts, now - before[0])
        return StatusReply(url, says, rates)

    def _get(self, url: str) -> _WorkerSays:
        answer = self._http.request("GET", url, redirect=False, preload_content=False)
        try:
            if answer.status != 200:
                raise ValueError(f"it answers with the status {answer.status}")
            text = answer.read(_LONGEST + 1)
            if len(text) > _LONGEST:
                raise ValueError("its answer is too long")
        finally:
            answer.close()
        return read_status(text)


_KEPT_FOR = 3600.0
"""Seconds for which points are kept."""
_MOST_POINTS = 7200
"""The most points that are kept, whatever the interval."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A point of the charts: the application at one moment."""

    at: float
    """Seconds since the epoch."""
    lag_ms: int | None
    """The largest lag; None if no lag is known."""
    kilobytes_per_second: float | None
    """By the lease table; None if no owner stores its rate."""
    records_per_second: float | None
    """By the workers; None if none of them is asked."""


def with_point(before: Sequence[ChartPoint], point: ChartPoint) -> tuple[ChartPoint, ...]:
    """Return the points of the last hour with another one."""
    # If the clock was set back, the points before are at no known time.
    is_back = bool(before) and point.at < before[-1].at
    kept = [] if is_back else [one for one in before if one.at >= point.at - _KEPT_FOR]
    return (*kept, point)[-_MOST_POINTS:]


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """An application at one moment, by its table, its streams and its workers."""

    number: int
    """Greater than those of earlier snapshots."""
    at: float
    """Seconds since the epoch."""
    view: View
    """As `sparkinesis top` shows it."""
    table: WatchedTable = field(default_factory=WatchedTable)
    listed: Mapping[StreamIdentifier | None, tuple[Shard, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The shards that the service lists, of the streams whose maps are shown."""
    reported: Reported = NOTHING_REPORTED
    history: tuple[ChartPoint, ...] = ()

    @property
    def stream_names(self) -> dict[str, StreamIdentifier | None]:
        """The streams by their names for people; ``""`` is the only one of an application."""
        names = shown_names(self.table.streams)
        return {name: one for one, name in names.items()} or {"": None}


_log = logging.getLogger(__name__)

_LIST_EVERY = 5.0
"""Seconds between two listings of a stream whose map is shown."""
_LIST_SOON = 1.0
"""The same, if a lease is of a shard that is not listed yet."""
_SHOWN_FOR = 30.0
"""Seconds for which a stream is listed after a page has asked for its map."""


class Watcher:
    """Takes snapshots of an application at an interval; a context manager.

    Any thread may read `snapshot` and call `show_map_of`. ``report``: asks the workers.
    """

    def __init__(
        self,
        monitor: LeaseMonitor,
        report: Callable[[], Reported],
        interval: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._monitor = monitor
        self._report = report
        self._interval = interval
        self._clock = clock
        self._wall_clock = wall_clock
        self._shown_at: dict[StreamIdentifier | None, float] = {}
        self._listed: dict[StreamIdentifier | None, tuple[Shard, ...]] = {}
        self._listed_at: dict[StreamIdentifier | None, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ui-watcher", daemon=True)
        self.snapshot = PageSnapshot(0, wall_clock(), View("", "", "KB/s"))
        """The latest one."""

    def __enter__(self) -> Watcher:
        """Take the first snapshot. Raises the errors of `LeaseMonitor.refresh`."""
        self._take_snapshot(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)

    def show_map_of(self, stream: StreamIdentifier | None) -> None:
        """List the stream's shards for a while; pages that show the map keep calling."""
        self._shown_at[stream] = self._clock()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval):
            try:
                self._take_snapshot()
            except Exception:  # noqa: BLE001 - a page that stands still would be worse
                _log.exception("The page could not look at the application. It tries again.")

    def _take_snapshot(self, *, first: bool = False) -> None:
        problems: tuple[str, ...] = ()
        try:
            self._monitor.refresh()
        except SparkinesisError as error:
            if first:
                raise
            problems = (str(error),)
        problems += self._list_shards()
        reported = self._report()
        view, now = self._monitor.view, self._wall_clock()
        if problems:
            view = replace(view, messages=(*problems, *view.messages))
        point = ChartPoint(
            now, view.millis_behind, view.rate, total(reported.worker_rates.values())
        )
        self.snapshot = PageSnapshot(
            self.snapshot.number + 1,
            now,
            view,
            self._monitor.snapshot.watched,
            dict(self._listed),
            reported,
            with_point(self.snapshot.history, point),
        )

    def _list_shards(self) -> tuple[str, ...]:
        """List the streams whose maps are shown and that are due; return what went wrong."""
        now = self._clock()
        for one, at in list(self._shown_at.items()):
            if now - at > _SHOWN_FOR:
                self._shown_at.pop(one)
                self._listed.pop(one, None)
                self._listed_at.pop(one, None)
        problems = []
        for stream in list(self._shown_at):
            pause = _LIST_SOON if self._has_unlisted(stream) else _LIST_EVERY
            if now - self._listed_at.get(stream, -math.inf) < pause:
                continue
            client = self._monitor.client_of(stream)
            if client is None:
                continue
            self._listed_at[stream] = now
            try:
                shards, _ = client.list_shards()
            except SparkinesisError as error:
                problems.append(f"The shards could not be listed: {error}")
            else:
                self._listed[stream] = tuple(shards)
        return tuple(problems)

    def _has_unlisted(self, stream: StreamIdentifier | None) -> bool:
        """Return True if a lease is of a shard that was made after the listing."""
        listed = {one.id for one in self._listed.get(stream, ())}
        newest = max(listed, default="")
        leases = self._monitor.snapshot.watched.leases
        return any(one.stream == stream and one.shard_id > newest for one in leases)
