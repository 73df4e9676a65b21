"""The streams of an application of several as all threads of a worker see them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from sparkinesis.status import StreamStatus
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream, Streams
from sparkinesis.worker.lifecycle.streams.tracked import Tracked, names

_MOST_NAMED = 5


class SharedStreams(Streams):
    """The streams as last found. Replaced by one thread, read by any."""

    may_change = True

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tracked: Mapping[StreamAddress, Tracked] = {}
        """Replaced, not changed, because other threads read it; so are the three below."""
        self._open: Mapping[StreamIdentifier, OpenStream] = {}
        self._wanted: frozenset[StreamIdentifier] = frozenset()
        self._unknown: frozenset[str] = frozenset()
        """The names of streams that exist, as far as is known, but were not identified yet."""
        self._lock = threading.Lock()
        self._doubted: set[StreamIdentifier] = set()
        """Open streams that may have been deleted or made anew; guarded by the lock."""
        self._left: dict[StreamIdentifier, OpenStream] = {}
        """Streams that this worker read, and whose consumers may have to be deregistered."""

    def get(self, stream: StreamIdentifier | None) -> OpenStream | None:
        if stream is None or stream in self._doubted:
            return None
        return self._open.get(stream)

    def wants(self, stream: StreamIdentifier | None) -> bool:
        return stream is not None and (stream in self._wanted or stream.name in self._unknown)

    def all(self) -> Sequence[OpenStream]:
        return tuple(self._open.values())

    def finished(self) -> Sequence[OpenStream]:
        return (*self._open.values(), *self._left.values())

    def doubt(self, stream: StreamIdentifier | None) -> None:
        with self._lock:
            if stream is not None and stream in self._open:
                self._doubted.add(stream)

    def statuses(self) -> tuple[StreamStatus, ...]:
        now = self._clock()
        return tuple(one.status(now) for one in self._tracked.values())

    def __str__(self) -> str:
        return names(list(self._tracked.values()), _MOST_NAMED)

    # --- for the thread that replaces them

    def _publish(self, tracked: Mapping[StreamAddress, Tracked]) -> None:
        """Make the streams known to the other threads, those that are open by their identifiers."""
        before, self._tracked, every = self._open, tracked, tracked.values()
        self._wanted = frozenset(one.identifier for one in every if one.identifier is not None)
        self._unknown = frozenset(
            one.plan.address.name for one in every if not one.identifier and not one.is_missing
        )
        self._open = {
            one.stream.id: one.stream
            for one in every
            if one.stream is not None and one.stream.id is not None
        }
        self._left = {
            key: stream for key, stream in {**self._left, **before}.items() if key not in self._open
        }
        with self._lock:
            self._doubted &= self._open.keys()

    def _trust(self, stream: StreamIdentifier) -> None:
        """Doubt an open stream no more: the service says that it exists."""
        with self._lock:
            self._doubted.discard(stream)
