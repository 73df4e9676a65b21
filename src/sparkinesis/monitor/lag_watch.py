"""Reads the lags of an application's leases repeatedly, at a rate that spares its consumers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.lags import UNFOUND, Lag, LagStreams, lag_of
from sparkinesis.monitor.watched import SHORT_REASONS, lag_position
from sparkinesis.stream.calls.client import StreamClient

_THREADS = 8
LAG_EVERY = 5.0
"""Least seconds between two reads of a shard's lag, each one of its five GetRecords a second."""
_SHARDS_PER_SECOND = 40
"""The most lags that are read a second, for all shards together."""
_LOOKS = 1.0
"""Seconds between two looks for streams that are due to be found, or have been."""
_KEPT_FOR = 30.0
"""Seconds for which the last known lag is returned while new reads fail, as by throttling."""


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
        self._leases: dict[str, tuple[Lease, StreamClient]] = {}
        """Those whose lags are read, with the client of each one's stream."""
        self._unreadable: dict[str, Lag] = {}
        """The reasons for the others, by lease key."""
        self._unfound = 0
        """The number of leases whose streams are still to be found."""
        self._due: deque[tuple[float, str]] = deque()
        """The time of each lease's next read, and its key; excludes leases that are being read."""
        self._busy: set[str] = set()
        self._known: dict[str, tuple[Lag, float]] = {}
        self._error: Exception | None = None
        self._trace: TracebackType | None = None
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
            mine: dict[str, tuple[Lease, StreamClient]] = {}
            self._unreadable, self._unfound = {}, 0
            for lease in self._asked:
                if lag_position(lease) is None:
                    # Finished: what was read of it before is no longer so.
                    self._unreadable[lease.key] = Lag()
                    continue
                found = self.streams.of(lease)
                if found is UNFOUND:
                    self._unfound += 1
                elif isinstance(found, Lag):
                    self._unreadable[lease.key] = found
                elif found is not None:
                    mine[lease.key] = lease, found
            new = [key for key in mine if key not in self._leases and key not in self._busy]
            self._leases = mine
            self._known = {key: lag for key, lag in self._known.items() if key in mine}
            known = ((due, key) for due, key in self._due if key in mine)
            self._due = deque([*((self._clock(), key) for key in new), *known])
            self._changed.notify_all()

    def known(self, timeout: float | None = 0.0) -> Mapping[str, Lag]:
        """Return the lags by lease key, once all are known, or after ``timeout`` seconds.

        Without a timeout (None), waits as long as it takes. Raises what `lag_of` raises.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._error is not None
                    or (not self._unfound and self._known.keys() >= self._leases.keys())
                ),
                timeout,
            )
            if self._error is not None:
                # One error is raised at each look: its traceback must not grow.
                raise self._error.with_traceback(self._trace)
            known = {key: lag for key, (lag, _) in self._known.items()}
            return {**known, **self._unreadable}

    def _find(self) -> None:
        """Find the streams of the leases, and find them again from time to time."""
        while not self._is_over:
            sorted_at, is_new = self._clock(), False
            try:
                for _ in self.streams.find(self._asked):
                    # With many streams, findings are published in batches.
                    is_new = self._clock() - sorted_at < _LOOKS
                    if not is_new:
                        sorted_at = self._clock()
                        self._sort()
                if is_new:
                    self._sort()
            except Exception as error:  # noqa: BLE001 - raised by `known`
                self._fail(error)
                return
            self._is_asked.wait(_LOOKS)
            self._is_asked.clear()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error, self._trace = error, error.__traceback__
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
                pause = None
                if self._due:
                    due, key = self._due[0]
                    pause = due - self._clock()
                    if pause <= 0:
                        self._due.popleft()
                        self._busy.add(key)
                        return self._leases[key]
                self._changed.wait(pause)
            return None

    def _learn(self, key: str, lag: Lag, began: float) -> None:
        with self._changed:
            self._busy.discard(key)
            if key in self._leases:
                if not self._is_trouble(lag) or not self._is_fresh(key):
                    self._known[key] = (lag, self._clock())
                every = max(self._every, len(self._leases) / _SHARDS_PER_SECOND)
                self._due.append((began + every, key))
            self._changed.notify_all()

    def _is_trouble(self, lag: Lag) -> bool:
        return bool(lag.why) and lag.why not in SHORT_REASONS

    def _is_fresh(self, key: str) -> bool:
        return key in self._known and self._clock() - self._known[key][1] < _KEPT_FOR
