"""The streams of an application of several, as they come, fail, return and go.

`tracked` decides what to do about a stream; this module does it.
"""

# A stream may be deleted and made anew under its name, with shards of the same ids. It is then
# another stream, whose leases are others: each stream is identified by its creation time, too, and
# opened by what the service has just said of it.
#
# - An answer is as old as the slowest one of its round. A stream that had waited half a minute for
#   another's answer was opened by its former identity: so an old answer is asked for again before
#   the first leases are created (`StreamOpener`, ``confirm``).
# - Whatever kept a stream from being opened, it is identified anew before the next try, for it may
#   be made anew until then, and would be opened by its former identity with the new shards.
# - No stream waits for another: each call that may take long runs in the background, and its result
#   is collected by the one thread that changes what is known.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import msgspec

from sparkinesis.errors import (
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    SparkinesisError,
    StreamNotFoundError,
)
from sparkinesis.events import StreamFailing, StreamReadable, StreamRemoved
from sparkinesis.lease.lease import leases_by_stream
from sparkinesis.lease.rules.audit import audits
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.lease.rules.row_streams import require_several_streams
from sparkinesis.lease.shards.stream_leases import made_anew
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.retry import exponential_backoff
from sparkinesis.stream.calls.stream_identity import (
    Found,
    SameStreams,
    StreamIdentity,
    by_place,
    identify_some,
    place_of,
)
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.streams.background import Background, LastingProblem
from sparkinesis.worker.lifecycle.streams.former_leases import FormerLeases
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream
from sparkinesis.worker.lifecycle.streams.opening import ShutDownError, StreamOpener, rows_by_stream
from sparkinesis.worker.lifecycle.streams.stream_config import FormerStreams, StreamSettings
from sparkinesis.worker.lifecycle.streams.stream_question import StreamQuestion
from sparkinesis.worker.lifecycle.streams.tracked import (
    SharedStreams,
    Tracked,
    clash,
    has_earlier_epoch,
    newest_epochs,
    recheck_interval,
    track,
    unreadable_for,
)
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.gauges import StreamCounts
from sparkinesis.worker.reporting.log_context import LogPlace

ASK_EVERY = 60.0
"""Seconds between two questions for the streams to read, and between two checks of a stream's
creation time (KCL: ``NEW_STREAM_CHECK_INTERVAL_MILLIS``)."""
_EACH_ALONE = 0.5
"""Seconds for each stream whose creation time has to be asked for by a call of its own: of
the 20 calls a second that an account may make, a worker makes two."""
_RETRY = (5.0, 300.0)
"""Seconds until a stream that cannot be read is tried again: at first, and at most."""
_AT_ONCE = 8
"""Streams that are opened at the same time, and places that are asked at the same time."""
_SOON = 1.0
"""Seconds between two updates."""
_UNDER_WAY = 0.2
"""Seconds between two updates while a call is under way."""
_LONG = 30.0
"""Seconds after which the user's function is said to block."""
_ENOUGH = 10.0
"""Seconds that a start waits for the other streams once some can be read."""


class _Scanned(msgspec.Struct, frozen=True):
    """What the last scan of the lease table says of the streams."""

    at: float | None = None
    newest: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The newest creation time of the streams of each name."""
    audited: frozenset[StreamIdentifier | None] = frozenset()
    """The streams of which this worker is the auditor."""


class SeveralStreams(SharedStreams):
    """Opens the streams of an application of several. See `Streams` for the threads.

    ask: returns the streams to read; it is the user's code, and may raise or block. may_change:
    False if its answer is always the same. snapshot: returns the last scan of the lease table.
    """

    def __init__(
        self,
        ask: Callable[[], Sequence[StreamSettings]],
        *,
        opener: StreamOpener,
        table: LeaseTable,
        snapshot: Callable[[], Snapshot],
        settings: WorkerSettings,
        former: FormerStreams,
        may_change: bool = True,
    ) -> None:
        super().__init__(settings.clock)
        every = ASK_EVERY if may_change else math.inf
        self._question = StreamQuestion(ask, settings, every=every, blocks_after=_LONG)
        self._opener = opener
        self._table = table
        self._snapshot = snapshot
        self._settings = settings
        place = LogPlace(settings.application, settings.worker_id)
        self._identities = Background[Found]("identify-streams", _AT_ONCE, place)
        self._openings = Background[OpenStream]("open-stream", _AT_ONCE, place)
        self._table_problem = LastingProblem(
            settings, "The lease table keeps streams from being opened", "will be retried"
        )
        self._same = SameStreams(opener.brief_client, settings.clock, settings.timing.sleep)
        self._former = FormerLeases(table, former, settings)
        self._scanned = _Scanned()

    # --- for the thread that starts the worker

    def find(self, wait: Callable[[float], bool]) -> None:
        """Find the streams, before anything is written.

        Raises the errors of the user's function and, if no stream can be found at all, the first
        stream's error: `StreamNotFoundError`, `AccessDeniedError`, `OptionError` or `ServiceError`.
        """
        self._question.ask_if_due()
        while (answer := self._question.answer(_UNDER_WAY, is_first=True)) is None:
            pass
        self._answered(answer)
        self._start_identifying(wait)
        began = self._clock()
        while not self._identities.is_idle:
            self._collect_identities(_UNDER_WAY)
            if self._wanted and self._clock() - began > _ENOUGH:
                return
        self._raise_if_none(self._wanted)

    def begin(self, wait: Callable[[float], bool]) -> None:
        """Open the streams; see `Streams`. Raises an error only if no stream can be opened."""
        scan = self._table.scan(consistent=True)
        require_several_streams(scan, str(self._table))
        self._start_opening(scan, wait)
        began = self._clock()
        while not self._openings.is_idle and not wait(0):
            self._collect_openings(_UNDER_WAY)
            if self._open and self._clock() - began > _ENOUGH:
                return
        if not wait(0):
            self._raise_if_none(self._open)

    def _raise_if_none(self, found: object) -> None:
        if not found and (errors := [one.error for one in self._tracked.values() if one.error]):
            raise errors[0]

    # --- for the thread of the `StreamLoop`

    def update(self, wait: Callable[[float], bool]) -> float:
        seen = self._snapshot()
        self._study(seen)
        self._question.ask_if_due()
        answer = self._question.answer(has_streams=bool(self._tracked))
        if answer is not None:
            self._answered(answer)
        self._collect_identities()
        self._start_identifying(wait)
        self._collect_openings()
        self._open_more(wait)
        self._leave(seen, wait)
        is_under_way = not (self._identities.is_idle and self._openings.is_idle)
        return _UNDER_WAY if is_under_way else _SOON

    def _study(self, seen: Snapshot) -> None:
        """Note what a new scan of the table says of the streams."""
        if seen.at == self._scanned.at:
            return
        leases = leases_by_stream(seen.leases)
        me = self._settings.worker_id
        self._scanned = _Scanned(
            seen.at,
            newest_epochs(seen.leases),
            frozenset(one for one in self._wanted if audits(me, leases.get(one, ()), seen)),
        )
        self._former.observe(seen, self.wants)

    # --- for any thread

    def counts(self) -> StreamCounts:
        tracked = self._tracked.values()
        failing = unreadable_for(tracked, self._clock())
        return StreamCounts(len(tracked), self._former.count, failing)

    # --- the application's streams

    def _answered(self, answer: Sequence[StreamSettings]) -> None:
        """Take over the user's answer."""
        before = self._tracked
        tracked = track(before, answer, self._clock())
        for address in before.keys() - tracked.keys():
            self._settings.publish(StreamRemoved(address.name, str(address)))
        self._replace(tracked)

    def _replace(self, tracked: Mapping[StreamAddress, Tracked]) -> None:
        self._publish(tracked)
        self._same.watch(one.plan.address for one in tracked.values() if one.stream is not None)

    # --- which streams they are

    def _start_identifying(self, wait: Callable[[float], bool]) -> None:
        now = self._clock()
        interval = recheck_interval(self._tracked.values(), ASK_EVERY, _EACH_ALONE)
        due = [
            address
            for address, one in self._tracked.items()
            if not self._identities.is_busy(place_of(address))
            and one.is_to_be_asked(
                now,
                audits=one.identifier in self._scanned.audited,
                is_doubted=one.identifier in self._doubted,
                newest_epoch=self._scanned.newest.get(address.name, 0),
                interval=interval,
            )
        ]
        for group in by_place(due):
            call = partial(identify_some, group, self._opener.brief_client, self._clock, wait)
            self._identities.start(place_of(group[0]), call)

    def _collect_identities(self, timeout: float = 0.0) -> None:
        results = self._identities.collect(timeout)
        if not results:
            return
        known = {one.identifier: one for one in self._tracked.values() if one.identifier}
        tracked = dict(self._tracked)
        for _, found in results:
            if isinstance(found, Exception):
                raise found  # a fault of ours: the calls' own errors are in the answer
            for address, result in found.items():
                if address in tracked:
                    newest = self._scanned.newest.get(address.name, 0)
                    one = tracked[address].asked(self._clock(), newest)
                    tracked[address] = one = self._identified(one, result, known)
                    if one.identifier is not None:
                        known[one.identifier] = one
        self._replace(tracked)

    def _identified(
        self,
        one: Tracked,
        result: StreamIdentity | SparkinesisError,
        known: dict[StreamIdentifier, Tracked],
    ) -> Tracked:
        """Return the stream after the service's answer to which it is."""
        address = one.plan.address
        if isinstance(result, StreamIdentity):
            other = known.get(result.identifier)
            if other is not None and other.plan.address != address:
                return self._failed(one, clash(one, other, result.identifier)).closed()
            if one.identifier not in {None, result.identifier}:
                self._settings.publish(made_anew(address, one.identifier, result.identifier))
            elif one.stream is not None and one.problem is not None:
                self._publish_readable(one)
            self._trust(result.identifier)
            return one.identified(result)
        is_gone = isinstance(result, StreamNotFoundError)
        if one.stream is not None and not is_gone and one.identifier not in self._doubted:
            return one  # the answer says nothing of the stream, which can still be read
        one = self._failed(one, result, longest=ASK_EVERY if is_gone else _RETRY[1])
        return one.closed() if is_gone or one.stream is None else one

    # --- opening

    def _open_more(self, wait: Callable[[float], bool]) -> None:
        now = self._clock()
        todo = [address for address, one in self._tracked.items() if one.is_to_be_opened(now)]
        if all(self._openings.is_busy(address) for address in todo):
            return
        try:
            scan = self._table.scan(consistent=True)
        except (LeaseTableNotFoundError, LeaseTableUnavailableError) as error:
            self._table_problem.note(error)
        else:
            self._table_problem.end()
            self._start_opening(scan, wait)

    def _start_opening(self, scan: TableScan, wait: Callable[[float], bool]) -> None:
        """Open the streams that are not open yet. ``scan``: of the whole table."""
        now = self._clock()
        todo = [one for one in self._tracked.values() if one.is_to_be_opened(now)]
        rows = rows_by_stream(scan) if todo else {}
        for one in todo:
            assert one.identifier is not None
            own = rows.get(one.identifier) or scan.of(one.identifier)
            earlier = has_earlier_epoch(one.identifier, rows)
            opening = partial(
                self._opener.open_ready, one, own, scan, wait, self._same, has_earlier=earlier
            )
            self._openings.start(one.plan.address, opening)

    def _collect_openings(self, timeout: float = 0.0) -> None:
        """Take over the results of openings. A stream that was not opened is identified anew."""
        results = self._openings.collect(timeout)
        if not results:
            return
        tracked = dict(self._tracked)
        for key, result in results:
            address = cast(StreamAddress, key)
            one = tracked.get(address)
            if isinstance(result, OpenStream):
                assert result.id is not None
                if one is None or one.identifier != result.id:
                    self._left[result.id] = result  # it has left meanwhile
                    continue
                if one.problem is not None:
                    self._publish_readable(one)
                tracked[address] = one.opened(result)
            elif isinstance(result, LeaseTableNotFoundError | LeaseTableUnavailableError):
                self._table_problem.note(result)
                if one is not None:
                    failed = one.failed(result, self._clock(), self._pause(1, _RETRY[0]))
                    tracked[address] = failed.closed()
            elif one is not None and not isinstance(result, ShutDownError):
                tracked[address] = self._failed(one, result).closed()
        self._replace(tracked)

    def _failed(self, one: Tracked, error: BaseException, *, longest: float = math.inf) -> Tracked:
        """Return a stream that cannot be read now; log a problem that is new."""
        text, before = describe(error), one.problem
        if before is None or before.text != text:
            if not isinstance(error, SparkinesisError):  # whose traceback says something
                self._settings.failures.note(None, f"{one.plan.address} cannot be read now", error)
            address = one.plan.address
            self._settings.publish(StreamFailing(address.name, str(address), text))
        tries = 1 if before is None else before.tries + 1
        return one.failed(error, self._clock(), self._pause(tries, min(longest, _RETRY[1])))

    def _publish_readable(self, one: Tracked) -> None:
        self._settings.publish(StreamReadable(one.plan.address.name, str(one.plan.address)))

    def _pause(self, tries: int, longest: float) -> float:
        pause = exponential_backoff(_RETRY[0], longest, tries)
        return self._settings.uniform(pause / 2, pause)

    # --- streams that have left

    def _leave(self, seen: Snapshot, wait: Callable[[float], bool]) -> None:
        """Delete the leases of streams that have left, and deregister their consumers, in time."""
        left = self._former.left(self.wants)
        read = {stream: self._left[stream] for stream in self._left.keys() & left}
        self._left = {key: one for key, one in self._left.items() if key not in read}
        self._former.finish(read)
        if left and audits(self._settings.worker_id, seen.leases, seen):
            self._former.delete(seen, self.wants, lambda: wait(0))
