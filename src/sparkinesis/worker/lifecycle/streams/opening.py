"""Opens streams: makes what a worker needs to read one."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.lease.lease import leases_by_stream
from sparkinesis.lease.shards.shard_ends import ShardEnds
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.shards.stream_leases import JAVA_NOTE, StreamLeases
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamAddress, StreamIdentifier, StreamMark
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.shared_calls import (
    AccountPace,
    anchored_clock,
    at_once,
    service_clock,
    shared_summary,
)
from sparkinesis.stream.calls.stream_identity import (
    SameStreams,
    StreamIdentity,
    described,
    require_same,
)
from sparkinesis.stream.position import CLOCKS_DIFFER_MS, AtTimestamp, InitialPosition
from sparkinesis.stream.reading.shard_end import ClosedShards
from sparkinesis.worker.lifecycle.settings import ConsumerSettings, WorkerSettings
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream
from sparkinesis.worker.lifecycle.streams.stream_config import StreamSettings
from sparkinesis.worker.lifecycle.streams.tracked import Tracked
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.retrieval.ahead import RetrievalMode
from sparkinesis.worker.retrieval.fan_out import ConsumerRegistration, FanOut
from sparkinesis.worker.retrieval.polling import Polling

_log = logging.getLogger(__name__)

_PATIENT = Backoff()
_BRIEF = Backoff(give_up_after=20.0)
_SURE_FOR = 20.0
"""Seconds for which a stream that was identified is that stream: deleting one and making it anew
takes longer."""


class StreamOpener:
    """Makes the clients and the open streams of one worker."""

    def __init__(
        self,
        settings: WorkerSettings,
        table: LeaseTable,
        subscription_clock: Callable[[], float] | None = None,
        leases_seen: Callable[[], int] = lambda: 0,
    ) -> None:
        """``leases_seen``: returns the number of leases in the last scan of the table."""
        self._settings = settings
        self._table = table
        self._subscription_clock = subscription_clock or settings.clock
        self._leases_seen = leases_seen
        self._notes = [JAVA_NOTE]
        self._paces: dict[object, AccountPace] = {}
        self._opened = 0

    def client(self, address: StreamAddress, retry: Backoff = _PATIENT) -> StreamClient:
        """Return a client for a stream. Nothing is called."""
        settings, timing = self._settings, self._settings.timing
        retry = timing.of(retry, settings.rng)
        return StreamClient(address, retry, timing.wall_clock_ms, settings.metrics)

    def brief_client(self, address: StreamAddress) -> StreamClient:
        """Return a client that gives up soon: other streams wait for its answer."""
        return self.client(address, _BRIEF)

    def open(
        self,
        plan: StreamSettings,
        client: StreamClient,
        known: StreamSummary | StreamIdentity,
        same: SameStreams | None = None,
        first: InitialPosition | None = None,
    ) -> OpenStream:
        """Make what reads a stream.

        known: the summary of the application's only stream, or the identity of one of several.
        same: knows whether one of several is still the same. first: see `StreamLeases`. Raises
        `OptionError` for an initial position in the future: leases would hold it for ever.
        """
        self._opened += 1
        _refuse_future(plan, known.service_time_ms)
        shared, timing = self._settings, self._settings.timing
        options = self._options_for(plan)
        polling = Polling(client, options, timing)
        retrieval: RetrievalMode = polling
        if options.retrieval == "efo":
            consumer = ConsumerRegistration(
                shared.application,
                client,
                options.fan_out,
                timing=timing,
                rng=shared.rng,
                pace=self._pace(plan.address) if isinstance(known, StreamIdentity) else at_once,
                publish=shared.publish,
            )
            retrieval = FanOut(
                consumer,
                client,
                polling,
                limits=options.ahead,
                timing=timing,
                rng=shared.rng,
                subscription_clock=self._subscription_clock,
            )
        describe = shared_summary(client, timing.clock)
        stream: StreamIdentifier | None = None
        mark: StreamMark | None = None
        phase = 0.0
        confirm: Callable[[], object] | None = None
        service_time_ms: Callable[[], int] = service_clock(describe)
        if isinstance(known, StreamIdentity):
            stream = known.identifier
            phase = _phase(stream)
            client.learn_arn(known.arn)
            confirm = partial(self._confirm, client, known)
            # An account may describe 20 streams a second, too few if hundreds begin at once.
            service_time_ms = anchored_clock(known.service_time_ms, known.at, timing.clock)
        else:
            mark = StreamMark.of(client.stream_arn(), known.created_ms)
        leases = StreamLeases(
            client,
            self._table,
            shared.worker_id,
            initial=plan.initial,
            wait=timing.sleep,
            stream=stream,
            first=first,
            table_size=self._table_size,
            notes=self._notes,
            confirm=confirm,
            mark=mark,
            brief=timing.of(_BRIEF, shared.rng),
            publish=shared.publish,
        )
        settings = ConsumerSettings(
            **msgspec.structs.asdict(msgspec.structs.replace(shared, options=options)),
            client=client,
            stream=stream,
            factory=plan.factory,
            on_error=plan.on_error,
            initial=plan.initial,
            started_ms=known.service_time_ms,
            service_time_ms=service_time_ms,
            describe=describe,
            same_streams=same,
        )
        sync, clock = options.shard_sync, timing.clock
        syncer = ShardSyncer(
            leases, settings=sync, clock=clock, phase=phase, metrics=shared.metrics
        )
        ends = ShardEnds(leases, clock=clock, recheck=sync.cleanup_interval)
        closed_shards = ClosedShards(client, timing.clock, phase)
        return OpenStream(settings, syncer, ends, retrieval, closed_shards)

    def open_ready(
        self,
        one: Tracked,
        own: TableScan,
        scan: TableScan,
        wait: Callable[[float], bool],
        same: SameStreams,
        *,
        has_earlier: bool,
    ) -> OpenStream:
        """Make what reads one of several streams; create its leases, and prepare its retrieval.

        own: the rows of the stream. scan: of the whole table. Raises `ShutDownError` if ``wait``
        says that the worker is to shut down, and the errors of the calls.
        """
        if wait(0):
            raise ShutDownError
        assert one.identity is not None
        client, first = self.client(one.plan.address), one.initial(has_earlier=has_earlier)
        stream = self.open(one.plan, client, one.identity, same, first)
        stream.syncer.sync(own, scan, wait)
        stream.retrieval.prepare(wait)
        return stream

    def _confirm(self, client: StreamClient, known: StreamIdentity) -> None:
        """Raise `StreamNotFoundError` if the stream may be a later one than the one identified.

        Then the shards that were listed meanwhile may be those of the later one. Also raises the
        errors of the call that asks.
        """
        if self._settings.clock() - known.at <= _SURE_FOR:
            return
        self._pace(client.address)("DescribeStreamSummary")
        require_same(client.address, described(client, self._settings.clock), known.identifier)

    def _pace(self, address: StreamAddress) -> AccountPace:
        """Return the pace of calls whose limits the streams of an account share."""
        timing = self._settings.timing
        return self._paces.setdefault(
            (address.region, address.endpoint, address.credentials),
            AccountPace(timing.clock, timing.sleep),
        )

    def _table_size(self) -> int:
        """Return about how many rows the lease table has, before the first scan too."""
        return max(self._leases_seen(), self._opened)

    def _options_for(self, plan: StreamSettings) -> WorkerOptions:
        options = self._settings.options
        if plan.function is not None:
            options = plan.function.options(options)
        if options.concurrency is not None:
            options = options.with_checkpoints()
        if plan.consumer_arn is not None:
            options = replace(
                options, fan_out=replace(options.fan_out, consumer_arn=plan.consumer_arn)
            )
        return options


def _refuse_future(plan: StreamSettings, now_ms: int) -> None:
    initial = plan.initial
    if isinstance(initial, AtTimestamp) and initial.ms > now_ms + CLOCKS_DIFFER_MS:
        now = AtTimestamp(now_ms).instant
        raise OptionError(
            f"initial_position is {initial.instant.isoformat()}, which is in the future: the clock "
            f"of {plan.address} shows {now.isoformat()}. Give an instant in the past, or latest. "
            "No lease was written."
        )


class ShutDownError(Exception):
    """A shutdown was requested before a stream could be opened."""


def rows_by_stream(scan: TableScan) -> dict[StreamIdentifier, TableScan]:
    """Return the rows of each stream in a scan of the whole table."""
    others = TableScan(has_entities=scan.has_entities, coordination=scan.coordination)
    return {
        stream: scan.of(stream)
        if scan.broken
        else msgspec.structs.replace(others, leases=tuple(leases))
        for stream, leases in leases_by_stream(scan.leases).items()
        if stream is not None
    }


def _phase(stream: StreamIdentifier) -> float:
    """Return a number from 0 to 1 that differs between streams, the same in each worker.

    It spreads what is done for each stream from time to time, such as audits.
    """
    return zlib.crc32(str(stream).encode()) / 2**32
