"""What a worker knows of one of several streams, and what it does with the stream next.

`Tracked` is a value; `SharedStreams` has those of all streams, as the worker's threads see them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import OptionError, StreamNotFoundError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.status import StreamStatus
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.stream_identity import StreamIdentity
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream, Streams
from sparkinesis.worker.lifecycle.streams.stream_config import StreamSettings
from sparkinesis.worker.reporting.failures import describe

_A_SECOND = 1000


class Problem(msgspec.Struct, frozen=True):
    """The reason why a stream cannot be read now."""

    error: BaseException
    text: str
    since: float
    tries: int
    """The number of tries in vain."""
    retry_at: float


class Tracked(msgspec.Struct, frozen=True):
    """A stream of the application, and how far this worker got with it."""

    plan: StreamSettings
    named_at: float
    """The time at which the application named the stream to this worker."""
    identity: StreamIdentity | None = None
    stream: OpenStream | None = None
    problem: Problem | None = None
    asked_at: float = -math.inf
    """The time at which the service was last asked for the identity."""
    newest_epoch: int = 0
    """The creation time (epoch seconds) of the newest stream of the name that was asked about."""
    is_late: bool = False
    """True if the stream could not be opened at once, or was made anew."""

    @property
    def identifier(self) -> StreamIdentifier | None:
        return None if self.identity is None else self.identity.identifier

    @property
    def error(self) -> BaseException | None:
        return None if self.problem is None else self.problem.error

    @property
    def is_missing(self) -> bool:
        """True if the stream does not exist; what becomes of its leases is the user's choice."""
        return isinstance(self.error, StreamNotFoundError)

    @property
    def retry_at(self) -> float:
        return -math.inf if self.problem is None else self.problem.retry_at

    # --- what happens to it

    def asked(self, now: float, newest_epoch: int) -> Tracked:
        return replace(self, asked_at=now, newest_epoch=max(newest_epoch, self.newest_epoch))

    def identified(self, identity: StreamIdentity) -> Tracked:
        """Return it with the service's answer. A stream that was made anew is to be opened."""
        if identity.identifier == self.identifier:
            return replace(self, problem=None if self.stream is not None else self.problem)
        return replace(
            self,
            identity=identity,
            stream=None,
            newest_epoch=max(self.newest_epoch, identity.identifier.creation_epoch),
            problem=None if self.problem is None else replace(self.problem, retry_at=-math.inf),
            is_late=self.is_late or self.identity is not None,
        )

    def opened(self, stream: OpenStream) -> Tracked:
        return replace(self, stream=stream, problem=None)

    def failed(self, error: BaseException, now: float, pause: float) -> Tracked:
        """Return it as one that cannot be read; it is tried again after ``pause`` seconds."""
        before = self.problem
        return replace(
            self,
            problem=Problem(
                error,
                describe(error),
                now if before is None else before.since,
                1 if before is None else before.tries + 1,
                now + pause,
            ),
            is_late=True,
        )

    def closed(self) -> Tracked:
        """Return it as one that is not read, and may be another stream when it is found again."""
        return replace(self, identity=None, stream=None)

    # --- what to do next

    def is_to_be_asked(
        self, now: float, *, audits: bool, is_doubted: bool, newest_epoch: int, interval: float
    ) -> bool:
        """Return True if the service is to be asked which stream it is now.

        audits: this worker is the auditor, which looks every ``interval`` seconds if the stream was
        made anew. is_doubted: a reader of the stream met an error that says so. newest_epoch: the
        creation time of the newest stream of this name that has leases.
        """
        if newest_epoch > self.newest_epoch and not math.isinf(self.asked_at):
            return True  # another worker has noticed
        if self.identity is None or is_doubted:
            return now >= self.retry_at
        return audits and now - self.asked_at >= interval

    def is_to_be_opened(self, now: float) -> bool:
        return self.identity is not None and self.stream is None and now >= self.retry_at

    def initial(self, *, has_earlier: bool) -> InitialPosition:
        """Return the position at which the stream's first leases begin.

        LATEST means the moment at which the application named the stream: what was put since then
        is read although the stream could not be read at once, or was made later. has_earlier: there
        are leases of an earlier stream of the name, so the application was reading the name before.
        """
        assert self.identity is not None
        initial = self.plan.initial
        if initial is not LATEST or not (self.is_late or has_earlier):
            return initial
        waited_ms = round((self.identity.at - self.named_at) * 1000)
        named_ms = self.identity.service_time_ms - waited_ms
        made_ms = self.identity.identifier.creation_epoch * 1000
        if has_earlier or named_ms < made_ms + _A_SECOND:
            return TRIM_HORIZON
        return AtTimestamp(named_ms)

    def status(self, now: float) -> StreamStatus:
        problem = self.problem
        return StreamStatus(
            self.plan.name,
            None if self.identifier is None else str(self.identifier),
            None if problem is None else problem.text,
            None if problem is None else now - problem.since,
        )


def track(
    before: Mapping[StreamAddress, Tracked], plans: Iterable[StreamSettings], now: float
) -> dict[StreamAddress, Tracked]:
    """Return the streams of a new answer; those that the application had keep their state."""
    return {plan.address: before.get(plan.address) or Tracked(plan, now) for plan in plans}


def recheck_interval(tracked: Iterable[Tracked], least: float, each: float) -> float:
    """Return the seconds between two questions for a stream's creation time.

    ``each``: the seconds for a question of its own, of a stream that ListStreams does not list.
    """
    alone = sum(one.identity is not None and not one.identity.was_listed for one in tracked)
    return max(least, alone * each)


def newest_epochs(leases: Iterable[Lease]) -> dict[str, int]:
    """Return the creation time (epoch seconds) of the newest stream of each name with leases."""
    newest: dict[str, int] = {}
    for lease in leases:
        if lease.stream is not None:
            name = lease.stream.name
            newest[name] = max(newest.get(name, 0), lease.stream.creation_epoch)
    return newest


def has_earlier_epoch(stream: StreamIdentifier, others: Iterable[StreamIdentifier]) -> bool:
    """Return True if an earlier stream of the same name is among others."""
    return any(
        (one.account, one.name) == (stream.account, stream.name)
        and one.creation_epoch < stream.creation_epoch
        for one in others
    )


def clash(one: Tracked, other: Tracked, stream: StreamIdentifier) -> OptionError:
    """Return the error of a stream whose identifier another stream of the application has."""
    if one.plan.address.region == other.plan.address.region:
        why = "It is one stream, given twice: leave one out."
    else:
        why = (
            "Their leases would have the same keys, which do not name the region (as in the KCL): "
            "read one of them with an application of its own."
        )
    return OptionError(f"{one.plan.address} and {other.plan.address} are both {stream}. {why}")


def unreadable_for(tracked: Iterable[Tracked], now: float) -> dict[str, float]:
    """Return the seconds for which streams cannot be read, by name: of two of a name, the longer.

    Two streams may have the same name in two accounts.
    """
    found: dict[str, float] = {}
    for one in tracked:
        if one.problem is not None:
            name = one.plan.address.name
            found[name] = max(now - one.problem.since, found.get(name, 0.0))
    return found


def names(tracked: Sequence[Tracked], most: int) -> str:
    """Return the streams' names for log lines, at most ``most`` of them."""
    return f"{len(tracked)} streams ({listed((one.plan.name for one in tracked), most)})"


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
