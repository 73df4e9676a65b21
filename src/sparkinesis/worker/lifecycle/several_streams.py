"""The streams of an application of several, as they come, fail, return and go."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sparkinesis.errors import OptionError, SparkinesisError, StreamNotFoundError
from sparkinesis.lease.coordinator import Snapshot
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.former_streams import (
    deletable_streams,
    observe_former,
    unread_former_streams,
)
from sparkinesis.lease.rules.leader import leader
from sparkinesis.lease.rules.table_mode import require_several_streams
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.backoff import exponential_backoff
from sparkinesis.stream.calls.stream_identity import StreamIdentity, identify
from sparkinesis.stream.identifier import StreamIdentifier
from sparkinesis.worker.lifecycle.opening import StreamOpener
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.streams import OpenStream
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.status import StreamStatus
from sparkinesis.worker.stream_config import FormerStreams, StreamPlan

_log = logging.getLogger(__name__)

ASK_EVERY = 60.0
"""Seconds between two questions for the streams to read, and between two looks of the leader at
the streams' creation times (KCL: ``NEW_STREAM_CHECK_INTERVAL_MILLIS``)."""
_RETRY = (5.0, 300.0)
"""Seconds until a stream that cannot be read is tried again: at first, and at most."""
_AT_ONCE = 8
"""Streams that are opened at the same time."""
_SOON = 1.0
_MOST_NAMED = 5


@dataclass
class _Tracked:
    """A stream of the application, and how far this worker got with it."""

    plan: StreamPlan
    identity: StreamIdentity | None = None
    asked_at: float = -math.inf
    """The time at which the service was last asked for the identity."""
    stream: OpenStream | None = None
    problem: str | None = None
    failing_since: float = 0.0
    failures: int = 0
    is_gone: bool = False
    """True if the stream does not exist; what becomes of its leases is the user's choice."""
    retry_at: float = -math.inf

    @property
    def identifier(self) -> StreamIdentifier | None:
        return None if self.identity is None else self.identity.identifier


class SeveralStreams:
    """Opens the streams of an application of several. See `Streams` for the threads.

    ask: returns the streams to read; it is the user's code, and may raise. snapshot: returns the
    last scan of the lease table.
    """

    may_change = True

    def __init__(
        self,
        ask: Callable[[], Sequence[StreamPlan]],
        *,
        opener: StreamOpener,
        table: LeaseTable,
        snapshot: Callable[[], Snapshot],
        settings: WorkerSettings,
        former: FormerStreams,
    ) -> None:
        self._ask = ask
        self._opener = opener
        self._table = table
        self._snapshot = snapshot
        self._settings = settings
        self._clock = settings.clock
        self._former = former
        self._ask_at = -math.inf
        self._tracked: dict[StreamAddress, _Tracked] = {}
        """Replaced, not changed, because other threads read it; so is `_open`."""
        self._open: dict[StreamIdentifier, OpenStream] = {}
        self._former_since: dict[StreamIdentifier, float] = {}
        """Streams of the table that the application does not read, and nobody else does."""

    def find(self, wait: Callable[[float], bool]) -> None:
        """Find the streams, before anything is written.

        Raises the errors of the user's function and, if no stream can be found at all, the first
        stream's error: `StreamNotFoundError`, `AccessDeniedError` or `ServiceError`.
        """
        self._update_plans(self._ask())
        self._identify(list(self._tracked.values()), wait, first=True)

    def begin(self, wait: Callable[[float], bool]) -> None:
        """Open the streams; see `Streams`. Raises an error only if no stream can be opened."""
        scan = self._table.scan(consistent=True)
        require_several_streams(scan, str(self._table))
        self._open_all(wait, scan, first=True)

    def look(self, wait: Callable[[float], bool]) -> float:
        now = self._clock()
        if now >= self._ask_at:
            self._ask_again()
        seen = self._snapshot()
        leads = leader(seen.leases, seen.expired) in {None, self._settings.worker_id}
        self._identify(self._due(seen, leads=leads), wait)
        if any(self._is_openable(one) for one in self._tracked.values()):
            self._open_all(wait, self._table.scan(consistent=True))
        if leads and seen.at is not None:
            self._delete_former(seen)
        retries = (one.retry_at for one in self._tracked.values() if one.stream is None)
        return max(_SOON, min(self._ask_at, *retries, math.inf) - self._clock())

    def get(self, stream: StreamIdentifier | None) -> OpenStream | None:
        return None if stream is None else self._open.get(stream)

    def all(self) -> Sequence[OpenStream]:
        return tuple(self._open.values())

    def statuses(self) -> tuple[StreamStatus, ...]:
        now = self._clock()
        return tuple(
            StreamStatus(
                one.plan.name,
                None if one.identifier is None else str(one.identifier),
                one.problem,
                None if one.problem is None else now - one.failing_since,
            )
            for one in self._tracked.values()
        )

    def __str__(self) -> str:
        names = [one.plan.name for one in self._tracked.values()]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"{len(names)} streams ({', '.join(names[:_MOST_NAMED])}{more})"

    # --- the application's streams

    def _ask_again(self) -> None:
        """Ask for the streams to read. If that fails, they stay as they are."""
        self._ask_at = self._clock() + ASK_EVERY
        try:
            plans = self._ask()
        except Exception as error:  # noqa: BLE001 - the user's function
            what = "Asking for the streams failed; they stay as they are, and it will be retried"
            self._settings.failures.note(None, what, error)
            _log.exception("%s", what)
        else:
            self._update_plans(plans)

    def _update_plans(self, plans: Iterable[StreamPlan]) -> None:
        self._ask_at = self._clock() + ASK_EVERY
        before = self._tracked
        self._tracked = {plan.address: before.get(plan.address) or _Tracked(plan) for plan in plans}
        for address in before.keys() - self._tracked.keys():
            _log.info("%s is no longer among the streams of the application", address)
        self._publish()

    def _publish(self) -> None:
        """Make the open streams known to the other threads, by their identifiers."""
        self._open = {
            one.stream.id: one.stream
            for one in self._tracked.values()
            if one.stream is not None and one.stream.id is not None
        }

    # --- which streams they are

    def _due(self, seen: Snapshot, *, leads: bool) -> list[_Tracked]:
        """Return the streams to ask the service for.

        The leader asks for each of its streams once a minute, and so notices a stream that was
        made anew; the other workers notice it by its leases.
        """
        now = self._clock()
        newest: dict[tuple[str, str], int] = {}
        for lease in seen.leases:
            if lease.stream is not None:
                name = lease.stream.account, lease.stream.name
                newest[name] = max(newest.get(name, 0), lease.stream.creation_epoch)
        return [
            one
            for one in self._tracked.values()
            if (one.identity is None and one.retry_at <= now)
            or (
                one.identity is not None
                and (leads or _is_older(one.identity.identifier, newest))
                and now - one.asked_at >= ASK_EVERY
            )
        ]

    def _identify(
        self, due: Sequence[_Tracked], wait: Callable[[float], bool], *, first: bool = False
    ) -> None:
        if not due:
            return
        found = identify((one.plan.address for one in due), self._opener.client, self._clock, wait)
        now, errors = self._clock(), []
        taken = {one.identifier: one for one in self._tracked.values() if one not in due}
        for one in due:
            one.asked_at, result = now, found[one.plan.address]
            if isinstance(result, SparkinesisError):
                errors.append(result)
                if one.stream is None or isinstance(result, StreamNotFoundError):
                    self._fail(one, result)
                    one.identity = one.stream = None
                continue
            other = taken.setdefault(result.identifier, one)
            if other is not one:
                self._fail(one, _same_identifier(one, other, result.identifier))
                one.identity = one.stream = None
            elif result.identifier != one.identifier:
                if one.identity is not None:
                    _log.warning(
                        "%s was deleted and made anew: it is read as %s from now on, not as %s",
                        one.plan.address,
                        result.identifier,
                        one.identifier,
                    )
                one.identity, one.stream, one.retry_at = result, None, -math.inf
                one.is_gone = False
        self._publish()
        if first and errors and len(errors) == len(due):
            raise errors[0]

    # --- opening

    def _is_openable(self, one: _Tracked) -> bool:
        return one.identity is not None and one.stream is None and one.retry_at <= self._clock()

    def _open_all(
        self, wait: Callable[[float], bool], scan: TableScan, *, first: bool = False
    ) -> None:
        """Open the streams that are not open yet, some at a time. ``scan``: of the whole table."""
        todo = [one for one in self._tracked.values() if self._is_openable(one)]
        if not todo:
            return
        rows = _by_stream(scan)

        def open_one(one: _Tracked) -> OpenStream | BaseException | None:
            assert one.identity is not None
            identifier = one.identity.identifier
            if wait(0):  # the worker shuts down
                return None
            own = rows.get(identifier, TableScan(has_entities=scan.has_entities))
            try:
                client = self._opener.client(one.plan.address)
                stream = self._opener.open(one.plan, client, one.identity)
                stream.syncer.sync(scan.of(identifier) if scan.broken else own, scan)
                stream.retrieval.prepare(wait)
            except Exception as error:  # noqa: BLE001 - or it would stop the other streams
                return error
            return stream

        errors = []
        with ThreadPoolExecutor(min(_AT_ONCE, len(todo)), "open-stream") as pool:
            for one, result in zip(todo, pool.map(open_one, todo), strict=True):
                if isinstance(result, OpenStream):
                    self._opened(one, result)
                elif result is not None:
                    self._fail(one, result)
                    errors.append(result)
        self._publish()
        if first and errors and not self._open:
            raise errors[0]

    def _opened(self, one: _Tracked, stream: OpenStream) -> None:
        one.stream, one.failures = stream, 0
        if one.problem is not None:
            _log.info("%s can be read now", one.plan.address)
            one.problem = None

    def _fail(self, one: _Tracked, error: BaseException) -> None:
        """Note that a stream cannot be read now, and log that once."""
        now = self._clock()
        text = describe(error)
        if one.problem is None:
            one.failing_since = now
        if one.problem != text:
            self._settings.failures.note(None, f"{one.plan.address} cannot be read now", error)
            _log.warning(
                "%s cannot be read now, and is tried again; other streams are not affected: %s",
                one.plan.address,
                text,
            )
        one.problem = text
        one.failures += 1
        one.is_gone = isinstance(error, StreamNotFoundError)
        longest = exponential_backoff(*_RETRY, one.failures)
        one.retry_at = now + self._settings.uniform(longest / 2, longest)

    # --- streams that have left

    def _delete_former(self, seen: Snapshot) -> None:
        """Delete the leases of streams that have left, when it is time."""
        tracked = self._tracked.values()
        former = unread_former_streams(
            seen.leases,
            {one.identifier for one in tracked if one.identifier is not None},
            {one.plan.address.name for one in tracked if not one.identifier and not one.is_gone},
            seen.expired,
        )
        now = self._clock()
        self._former_since = observe_former(self._former_since, former, now)
        after = self._former.delete_after
        if not self._former_since or after is None:
            return
        only: Collection[str] | None = None
        if self._former.only is not None:
            only = frozenset(self._former.only())
        for stream in deletable_streams(self._former_since, now, after, only):
            self._delete_leases(stream, [one for one in seen.leases if one.stream == stream])

    def _delete_leases(self, stream: StreamIdentifier, leases: Iterable[Lease]) -> None:
        # Newer shards first: what remains after a crash are ancestors, which lead to the others.
        deleted = 0
        for lease in sorted(leases, key=lambda one: one.shard_id, reverse=True):
            deleted += self._table.delete(lease)
        _log.info(
            "Deleted %d leases of %s, which has left the application %g s ago or earlier",
            deleted,
            stream,
            self._clock() - self._former_since[stream],
        )


def _is_older(identifier: StreamIdentifier, newest: dict[tuple[str, str], int]) -> bool:
    """Return True if the lease table has a newer stream of the same name."""
    found = newest.get((identifier.account, identifier.name), 0)
    return identifier.creation_epoch < found


def _by_stream(scan: TableScan) -> dict[StreamIdentifier, TableScan]:
    """Return the rows of each stream in a scan of the whole table."""
    streams = {lease.stream for lease in scan.leases if lease.stream is not None}
    leases: dict[StreamIdentifier, list[Lease]] = {stream: [] for stream in streams}
    for lease in scan.leases:
        if lease.stream is not None:
            leases[lease.stream].append(lease)
    if scan.broken:
        return {stream: scan.of(stream) for stream in streams}
    return {
        stream: TableScan(tuple(found), (), scan.has_entities) for stream, found in leases.items()
    }


def _same_identifier(one: _Tracked, other: _Tracked, identifier: StreamIdentifier) -> OptionError:
    same = one.plan.address.region == other.plan.address.region
    why = (
        "It is one stream, given twice: leave one out."
        if same
        else "Their leases would have the same keys, which do not name the region (as in the KCL): "
        "read one of them with an application of its own."
    )
    return OptionError(f"{one.plan.address} and {other.plan.address} are both {identifier}. {why}")
