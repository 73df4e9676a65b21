"""Reads the lags of an application's leases repeatedly, at a rate that spares its consumers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.lags import Lag, lag_of, of_stream
from sparkinesis.monitor.watched import SHORT_REASONS
from sparkinesis.stream.calls.client import StreamClient

_THREADS = 8
_EVERY = 5.0
"""Least seconds between two reads of a shard's lag, each one of its five GetRecords a second."""
_SHARDS_PER_SECOND = 40
"""The most lags that are read a second, for all shards together."""
_KEPT_FOR = 30.0
"""Seconds for which the last known lag is returned while new reads fail, as by throttling."""


class LagWatch:
    """Keeps the lags of one stream's leases up to date; a context manager.

    Any thread may call. The threads that read lags are daemons: the process does not wait for them.
    """

    def __init__(
        self,
        client: StreamClient,
        clock: Callable[[], float] = time.monotonic,
        every: float = _EVERY,
    ) -> None:
        self._client = client
        self._clock = clock
        self._every = every
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._leases: dict[str, Lease] = {}
        self._due: deque[tuple[float, str]] = deque()
        """The time of each lease's next read, and its key; excludes leases that are being read."""
        self._busy: set[str] = set()
        self._known: dict[str, tuple[Lag, float]] = {}
        self._error: Exception | None = None
        self._is_over = False

    def __enter__(self) -> LagWatch:
        for number in range(_THREADS):
            threading.Thread(target=self._run, name=f"lag-{number}", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def ask_for(self, leases: Iterable[Lease]) -> None:
        """Replace the leases whose lags are read; all other lags are dropped."""
        mine = {lease.key: lease for lease in of_stream(leases, self._client.address.name)}
        with self._changed:
            new = [key for key in mine if key not in self._leases and key not in self._busy]
            self._leases = mine
            self._known = {key: lag for key, lag in self._known.items() if key in mine}
            known = ((due, key) for due, key in self._due if key in mine)
            self._due = deque([*((self._clock(), key) for key in new), *known])
            self._changed.notify_all()

    def known(self, timeout: float | None = 0.0) -> Mapping[str, Lag]:
        """Return the lags by lease key, once all are known, or after ``timeout`` seconds.

        Without a timeout (None), waits as long as it takes. Raises `StreamNotFoundError` and
        `AccessDeniedError`.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._error is not None or self._known.keys() >= self._leases.keys(),
                timeout,
            )
            if self._error is not None:
                raise self._error
            return {key: lag for key, (lag, _) in self._known.items()}

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            began = self._clock()
            try:
                lag = lag_of(self._client, lease)
            except Exception as error:  # noqa: BLE001 - raised by `known`
                with self._changed:
                    self._error = error
                    self._is_over = True
                    self._changed.notify_all()
                return
            self._learn(lease.key, lag, began)

    def _next(self) -> Lease | None:
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
