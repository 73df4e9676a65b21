"""Scans an application's lease table repeatedly, and reads the lags of its leases.

The lags are read in threads, at a rate that spares the application's consumers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lags import UNFOUND, Lag, LagStreams, lag_of
from sparkinesis.monitor.lease_report import top_object, top_view
from sparkinesis.monitor.watched import QUIET, SHORT_REASONS, WatchedTable, lag_position
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.terminal.printing import counted
from sparkinesis.terminal.view import View

_THREADS = 8
LAG_EVERY = 5.0
"""Least seconds between two reads of a shard's lag, each one of its five GetRecords a second."""
_SHARDS_PER_SECOND = 40
"""The most lags that are read a second, for all shards together."""
_FIND_EVERY = 1.0
"""Seconds between two rounds in which the streams of leases are found."""
_KEPT_FOR = 30.0
"""Seconds for which the last known lag is returned while new reads fail, as by throttling."""


@dataclass(frozen=True)
class _Readable:
    """The leases whose lags are wanted, by what is known of their streams."""

    leases: Mapping[str, tuple[Lease, StreamClient]] = field(default_factory=dict)
    """Those whose lags are read, by lease key, with the client of each one's stream."""
    unreadable: Mapping[str, Lag] = field(default_factory=dict)
    """The reasons for the others, by lease key."""
    unfound: int = 0
    """The number of leases whose streams are still to be found."""

    @classmethod
    def of(cls, leases: Iterable[Lease], streams: LagStreams) -> _Readable:
        readable: dict[str, tuple[Lease, StreamClient]] = {}
        unreadable: dict[str, Lag] = {}
        unfound = 0
        for lease in leases:
            if lag_position(lease) is None:
                # Finished: what was read of it before is no longer so.
                unreadable[lease.key] = Lag()
                continue
            found = streams.of(lease)
            if found is UNFOUND:
                unfound += 1
            elif isinstance(found, Lag):
                unreadable[lease.key] = found
            elif found is not None:
                readable[lease.key] = lease, found
        return cls(readable, unreadable, unfound)


class _Turns:
    """Which lease's lag is read next, and when. Guarded by the lock of its owner."""

    def __init__(self) -> None:
        self._due: deque[tuple[float, str]] = deque()
        """The time of each lease's next read, and its key; excludes leases that are being read."""
        self._busy: set[str] = set()

    def replace(self, keys: Collection[str], known: Collection[str], now: float) -> None:
        """Drop all leases but these; those that are not ``known`` come first, at once."""
        new = [key for key in keys if key not in known and key not in self._busy]
        kept = ((due, key) for due, key in self._due if key in keys)
        self._due = deque([*((now, key) for key in new), *kept])

    def pause(self, now: float) -> float | None:
        """Return the seconds until the next read; None if no lease waits for one."""
        return self._due[0][0] - now if self._due else None

    def begin(self) -> str:
        """Return the key of the lease whose turn it is: its lag is being read from now on."""
        _, key = self._due.popleft()
        self._busy.add(key)
        return key

    def end(self, key: str, due: float | None) -> None:
        """The lag of a lease was read; it is read again at ``due``, or not at all."""
        self._busy.discard(key)
        if due is not None:
            self._due.append((due, key))


class LagWatch:
    """Keeps the lags of an application's leases up to date; a context manager.

    Any thread may call. The threads that read lags, and the one that finds the leases' streams, are
    daemons: the process does not wait for them.
    """

    def __init__(
        self,
        streams: LagStreams,
        clock: Callable[[], float] = time.monotonic,
        every: float = LAG_EVERY,
    ) -> None:
        self.streams = streams
        self._clock = clock
        self._every = every
        self._is_asked = threading.Event()
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._asked: tuple[Lease, ...] = ()
        """All leases whose lags are wanted."""
        self._readable = _Readable()
        self._turns = _Turns()
        self._known: dict[str, tuple[Lag, float]] = {}
        """The lag of each lease, and the time at which it was read."""
        self._failure: tuple[Exception, TracebackType | None] | None = None
        """The error that has ended a thread, and its traceback."""
        self._is_over = False

    def __enter__(self) -> LagWatch:
        for number in range(_THREADS):
            threading.Thread(target=self._run, name=f"lag-{number}", daemon=True).start()
        threading.Thread(target=self._find, name="lag-streams", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._is_asked.set()

    def ask_for(self, leases: Iterable[Lease]) -> None:
        """Replace the leases whose lags are read; all other lags are dropped."""
        with self._changed:
            self._asked = tuple(leases)
            self._sort()
        self._is_asked.set()

    def _sort(self) -> None:
        """Sort the leases by what is known of their streams."""
        with self._changed:
            before, self._readable = self._readable, _Readable.of(self._asked, self.streams)
            mine = self._readable.leases
            self._known = {key: lag for key, lag in self._known.items() if key in mine}
            self._turns.replace(mine.keys(), before.leases.keys(), self._clock())
            self._changed.notify_all()

    def known(self, timeout: float | None = 0.0) -> Mapping[str, Lag]:
        """Return the lags by lease key, once all are known, or after ``timeout`` seconds.

        Without a timeout (None), waits as long as it takes. Raises what `lag_of` raises.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or (
                        not self._readable.unfound
                        and self._known.keys() >= self._readable.leases.keys()
                    )
                ),
                timeout,
            )
            if self._failure is not None:
                # The same error is raised by each call: its traceback must not grow.
                error, trace = self._failure
                raise error.with_traceback(trace)
            known = {key: lag for key, (lag, _) in self._known.items()}
            return {**known, **self._readable.unreadable}

    def _find(self) -> None:
        """Find the streams of the leases, and find them again from time to time."""
        while not self._is_over:
            sorted_at, is_new = self._clock(), False
            try:
                for _ in self.streams.find(self._asked):
                    # With many streams, findings are published in batches.
                    is_new = self._clock() - sorted_at < _FIND_EVERY
                    if not is_new:
                        sorted_at = self._clock()
                        self._sort()
                if is_new:
                    self._sort()
            except Exception as error:  # noqa: BLE001 - raised by `known`
                self._fail(error)
                return
            self._is_asked.wait(_FIND_EVERY)
            self._is_asked.clear()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error, error.__traceback__
            self._is_over = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            lease, client = due
            began = self._clock()
            try:
                lag = lag_of(client, lease)
            except Exception as error:  # noqa: BLE001 - raised by `known`
                self._fail(error)
                return
            self._learn(lease.key, lag, began)

    def _next(self) -> tuple[Lease, StreamClient] | None:
        """Wait for the next lease that is due, and return it; None at the end."""
        with self._changed:
            while not self._is_over:
                pause = self._turns.pause(self._clock())
                if pause is not None and pause <= 0:
                    return self._readable.leases[self._turns.begin()]
                self._changed.wait(pause)
            return None

    def _learn(self, key: str, lag: Lag, began: float) -> None:
        with self._changed:
            count, due = len(self._readable.leases), None
            if key in self._readable.leases:
                if not self._is_trouble(lag) or not self._is_fresh(key):
                    self._known[key] = (lag, self._clock())
                due = began + max(self._every, count / _SHARDS_PER_SECOND)
            self._turns.end(key, due)
            self._changed.notify_all()

    def _is_trouble(self, lag: Lag) -> bool:
        return bool(lag.why) and lag.why not in SHORT_REASONS

    def _is_fresh(self, key: str) -> bool:
        return key in self._known and self._clock() - self._known[key][1] < _KEPT_FOR


@contextmanager
def watching(
    table: LeaseTable,
    streams: ChosenStreams,
    interval: float,
    *,
    give_up_after: float = 1.0,
    lag_every: float = LAG_EVERY,
) -> Iterator[LeaseMonitor]:
    """Yield a monitor, with the threads that read the lags.

    ``give_up_after``: seconds after which the call for a lag is no longer retried: a failed one is
    repeated at the next turn. ``lag_every``: the least seconds between two reads of a shard's lag.
    Raises what `LeaseTable.scan` and `ChosenStreams.lag_streams` raise.
    """
    leases = table.scan(consistent=False).leases
    lag_streams = streams.lag_streams(leases, table, give_up_after)
    with LagWatch(lag_streams, every=lag_every) as lags:
        yield LeaseMonitor(table, streams, lags, interval)


class LeaseMonitor:
    """Scans a lease table and asks for the lags of its leases at an interval. For one thread."""

    def __init__(
        self,
        table: LeaseTable,
        streams: ChosenStreams,
        lags: LagWatch,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.snapshot = ApplicationSnapshot.of(WatchedTable(), {})
        """The application as of the last scan; empty before it."""
        self.trouble: str | None = None
        """The error of the last scan, if it failed."""
        self._table = table
        self._streams = streams
        self._lag_watch = lags
        self._interval = interval
        self._clock = clock
        self._watched = WatchedTable()
        self._lags: Mapping[str, Lag] = {}
        self._due = clock()
        self._pause = interval

    def refresh(self, timeout: float | None = 0.0) -> bool:
        """Scan the table if it is due, and read the lags; return True if a scan succeeded.

        ``timeout``: seconds to wait for lags that are not known yet; None: without limit.
        Raises what `LagWatch.known` raises, and at the first scan what `LeaseTable.scan` raises.
        """
        # The nearest turn counts, which may come a moment too early.
        is_due = self._clock() >= self._due - self._interval / 2
        has_scanned = is_due and self._scan_table()
        try:
            self._lags = self._lag_watch.known(timeout)
        finally:
            quiet = max(QUIET, 3 * self._pause)
            wanted = self._streams.wanted(self._watched.streams)
            self.snapshot = ApplicationSnapshot.of(self._watched, self._lags, wanted, quiet)
        return has_scanned

    def _scan_table(self) -> bool:
        began = self._clock()
        try:
            scan = self._table.scan(consistent=False)
        except LeaseTableUnavailableError as error:
            if self._watched.began is None:
                raise
            self.trouble = str(error)
            return False
        finally:
            # A large table is scanned less often.
            self._pause = max(self._interval, 5 * (self._clock() - began))
            self._due = began + self._pause
        self.trouble = None
        self._watched = self._watched.after_scan(scan.leases, began, scan.broken)
        wanted = self._streams.wanted(self._watched.streams)
        self._lag_watch.ask_for(self._watched.of(wanted).leases)
        return True

    @property
    def only_stream(self) -> str | None:
        """The stream that the operator names for a table whose leases name none."""
        selectors = self._streams.selectors
        return selectors[0].name if len(selectors) == 1 and not self._watched.streams else None

    def client_of(self, stream: StreamIdentifier | None) -> StreamClient | None:
        """Return the client of a stream with leases; None if there is none, or not yet."""
        its = (one for one in self.snapshot.watched.leases if one.stream == stream)
        found = next(map(self._lag_watch.streams.of, its), None)
        return found if isinstance(found, StreamClient) else None

    @property
    def view(self) -> View:
        """The application as `sparkinesis top` shows it."""
        what = f"stream {self.only_stream}" if self.only_stream else ""
        if self.snapshot.names:
            what = counted(len(self.snapshot.names), "stream")
        summary = f"updated every {self._pause:.3g} s"
        if self.trouble is not None:
            summary = f"last updated {self._clock() - self._watched.at:.0f} s ago"
        messages = [self.trouble] if self.trouble else []
        return top_view(
            ", ".join(filter(None, (self._table.name, what))), summary, self.snapshot, messages
        )

    @property
    def object(self) -> dict[str, Any]:
        """The same for JSON."""
        return top_object(self._table.name, self.only_stream, self.snapshot)
