"""Plans the batches of a query: one planner for each stream, and one offset for all of them.

In a backlog the next batch is planned while Spark runs the present one (`_BackgroundPlan`).
`QueryConsumers` are the query's registered consumers, `LagTrend` finds that it does not catch up.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkinesis.errors import SparkinesisError
from sparkinesis.source.offsets import Offset
from sparkinesis.source.options.checked_options import (
    NO_LIMIT,
    Allowance,
    FanOutRead,
    StreamReadOptions,
)
from sparkinesis.source.planning.aligned_batch import plan_batch
from sparkinesis.source.planning.probe_threads import MOST_THREADS, ProbeThreads
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.source.planning.stream_tools import PlanCalls, StreamTools
from sparkinesis.source.stream_report import StreamReport, lag_report
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.registered_consumers import (
    deregister_consumer,
    describe_consumer,
    register_consumer,
)
from sparkinesis.stream.page import Record
from sparkinesis.stream.timing import MACHINE, Timing

_log = logging.getLogger(__name__)

COUNTED = Allowance(rows=1e12)
"""A limit that no batch meets."""

BACKLOG_FROM = 0.8
"""The share of the allowance from which a batch is taken as the sign of a backlog."""

INTERVAL = 600.0
"""Seconds in which the lag of a query that catches up becomes smaller."""

MIN_LAG_MS = 60_000
"""A lag up to this is that of a query that keeps up."""


@dataclass(frozen=True, slots=True)
class _PlannedBatch:
    """A planned batch: its two offsets, its share of the allowance, and what is known of it."""

    start: Offset
    end: Offset
    taken: float
    reports: Mapping[str, StreamReport]
    expected: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    carried: Mapping[tuple[str, str], Sequence[Record]] = field(default_factory=dict)


class _BackgroundPlan:
    """A plan made ahead by its own thread, which owns the planners until it ends."""

    def __init__(
        self,
        start: Offset,
        allowance: Allowance,
        plan: Callable[[Offset, Allowance], _PlannedBatch],
    ) -> None:
        self.start = start
        self.allowance = allowance
        self._plan = plan
        self._batch: _PlannedBatch | None = None
        # A daemon thread: a query that stops does not wait for a plan that is not needed.
        self._thread = threading.Thread(target=self._run, name="plan-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._batch = self._plan(self.start, self.allowance)
        except Exception:  # noqa: BLE001 - the next plan meets the error again, and raises it
            _log.debug("A batch could not be planned ahead.", exc_info=True)

    def wait(self) -> _PlannedBatch | None:
        """Wait for the plan and return it; None if it failed."""
        self._thread.join()
        return self._batch


class LagTrend:
    """The smallest lag of each interval: that of a query that catches up falls. For one thread."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._least_ms = 0
        self._before_ms: int | None = None
        self._has_returned_true = False

    def stays_behind(self, now: float, lag_ms: int) -> bool:
        """Add the lag at the end of a batch; return True once if it does not become smaller.

        ``now``: monotonic, in seconds.
        """
        if self._began is None:
            self._began, self._least_ms = now, lag_ms
            return False
        self._least_ms = min(self._least_ms, lag_ms)
        if now - self._began < INTERVAL:
            return False
        before, least = self._before_ms, self._least_ms
        self._began, self._least_ms, self._before_ms = now, lag_ms, least
        is_behind = before is not None and before <= least and least > MIN_LAG_MS
        if not is_behind or self._has_returned_true:
            return False
        self._has_returned_true = True
        return True


class QueryConsumers:
    """The registered consumers of a query, one for each stream. Owned by one thread."""

    def __init__(
        self, fan_out: FanOutRead, clients: Mapping[str, StreamClient], threads: ProbeThreads
    ) -> None:
        self._fan_out = fan_out
        self._clients = clients
        self._threads = threads
        self._arns: dict[str, str] = {}
        self._has_registered = False

    def arns(self) -> Mapping[str, str]:
        """Return the ARN of the consumer of each stream.

        The first call registers the consumers, and waits until they are ACTIVE. Raises
        `ConsumerLimitError`.
        """
        if len(self._arns) < len(self._clients):

            def register(stream: str) -> None:
                self._arns[stream] = register_consumer(
                    self._clients[stream], self._fan_out.consumer_name
                )

            self._has_registered = True
            self._threads.for_all(self._clients, register)
        return self._arns

    def stop(self) -> None:
        """Deregister the consumers if the options say so."""
        if not self._fan_out.deregister or not self._has_registered:
            return
        name = self._fan_out.consumer_name
        for stream, client in self._clients.items():
            try:
                if stream in self._arns:
                    deregister_consumer(client, self._arns[stream])
                # The ARN is not known yet if the query stops while the consumer is created.
                elif consumer := describe_consumer(
                    client, StreamARN=client.stream_arn(), ConsumerName=name
                ):
                    deregister_consumer(client, consumer.arn)
            except SparkinesisError as error:
                _log.warning(
                    "The consumer %s of %s could not be deregistered: %s",
                    name,
                    client.address,
                    error,
                )


class SourcePlanner:
    """The planner of a query, which keeps its state between batches. Owned by one thread."""

    def __init__(self, options: StreamReadOptions, timing: Timing = MACHINE) -> None:
        self._options = options
        self._timing = timing
        self._threads = ProbeThreads(fewest=MOST_THREADS)
        """For the streams; a planner has its own for its shards."""
        self._planners = {
            name: StreamPlanner(_tools(address, options, timing))
            for name, address in options.reading.streams.items()
        }
        self._consumers: QueryConsumers | None = None
        if options.fan_out is not None:
            clients = {name: each.stream.client for name, each in self._planners.items()}
            self._consumers = QueryConsumers(options.fan_out, clients, self._threads)
        self._ahead: _BackgroundPlan | None = None
        self._planned: _PlannedBatch | None = None
        self._batch_at = float("-inf")
        """The time of the last batch; it is not stored, so the first one never waits for rows."""
        self._stops = False
        self._trend = LagTrend()

    def consumers(self) -> Mapping[str, str]:
        """Return the ARN of the consumer of each stream; empty when the query polls.

        The first call registers the consumers. Raises `ConsumerLimitError`.
        """
        return self._consumers.arns() if self._consumers is not None else {}

    def stop(self) -> None:
        """Stop, and deregister the query's consumers if the options say so."""
        if self._consumers is not None:
            self._consumers.stop()

    def stop_at_present(self) -> None:
        """Plan from now on as if nothing arrived after this instant, and without pauses."""
        self._stops = True
        self._threads.for_all(self._planners.values(), StreamPlanner.stop_at_present)

    def next_offset(self, start: Offset, allowance: Allowance = NO_LIMIT) -> Offset:
        """Return the end of the batch that begins at ``start``; ``start`` itself without rows.

        In a backlog the next batch is planned while Spark runs this one.
        """
        self.consumers()  # raises their errors before anything is planned
        if self._options.min_rows and not allowance.is_limited:
            allowance = COUNTED  # rows are counted only for a limit
        batch = self._planned_ahead(start, allowance) or self._plan(
            start, allowance, self._least_rows()
        )
        if batch.end is not start:
            if batch.expected:
                self._batch_at = self._timing.clock()
            self._warn_if_behind(batch)
        if allowance.is_limited and batch.taken >= BACKLOG_FROM:
            self._ahead = _BackgroundPlan(batch.end, allowance, self._plan)
        self._planned = batch
        return batch.end

    def expected(self, end: Offset) -> Mapping[tuple[str, str], int | None]:
        """Return the approximate number of records of the batch to ``end``, by stream and shard."""
        return self._planned.expected if self._planned and self._planned.end == end else {}

    def carried(self, start: Offset, end: Offset) -> Mapping[tuple[str, str], Sequence[Record]]:
        """Return the records of the batch from ``start`` to ``end``, by stream and shard.

        Only those of shards with few records, and only of the batch that was planned last.
        """
        planned = self._planned
        if planned is None or planned.start != start or planned.end != end:
            return {}
        return planned.carried

    @property
    def reports(self) -> Mapping[str, StreamReport]:
        """The last plan's report of each stream, for the query's progress."""
        return self._planned.reports if self._planned else {}

    def _planned_ahead(self, start: Offset, allowance: Allowance) -> _PlannedBatch | None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        batch = ahead.wait()
        fits = ahead.start == start and ahead.allowance == allowance
        # A batch that was not full would leave out the records that have arrived since.
        return batch if batch is not None and fits and batch.taken >= BACKLOG_FROM else None

    def _warn_if_behind(self, batch: _PlannedBatch) -> None:
        """Log once if one full batch after another does not bring the query closer to the tip."""
        lags = (report.millis_behind_latest for report in batch.reports.values())
        lag_ms = max((lag.max for lag in lags if lag is not None), default=0)
        is_held_back = self._options.max_shard_drift < math.inf and batch.taken >= BACKLOG_FROM
        if not is_held_back or not self._trend.stays_behind(self._batch_at, lag_ms):
            return
        counts = {shard: count or 0 for shard, count in batch.expected.items()}
        stream, heaviest = max(counts, key=lambda shard: counts[shard])
        _log.warning(
            "The query is %d seconds behind the tip of its streams, and has not come closer for "
            "%d minutes, though each batch is as large as its limit allows. Shard %s of stream %r "
            "has the most records, %d of about %d in this batch; the other shards wait for it, so "
            "that no row is late behind a watermark. Raise maxRecordsPerTrigger or "
            "maxBytesPerTrigger. If the query does not use event time, set the option "
            "maxShardDrift=unbounded to read the other shards sooner.",
            lag_ms // 1000,
            INTERVAL // 60,
            heaviest,
            stream,
            counts[stream, heaviest],
            sum(counts.values()),
        )

    def _least_rows(self) -> int:
        """Return the fewest rows of the next batch: none if the last one is long enough ago."""
        waited = self._timing.clock() - self._batch_at
        is_due = self._stops or waited >= self._options.max_trigger_delay
        return 0 if is_due else self._options.min_rows

    def _plan(self, start: Offset, allowance: Allowance, least_rows: int = 0) -> _PlannedBatch:
        initial = self._options.initial_positions
        added = {name: initial for name in self._planners if name not in start}
        if added:
            # The checkpoint stores their start first: a replay must not depend on the options.
            return _PlannedBatch(start, {**start, **added}, 0.0, {})
        batch = plan_batch(
            self._planners,
            start,
            allowance,
            self._options.max_shard_drift,
            least_rows,
            threads=self._threads,
        )
        is_same = all(batch.end[name] is start[name] for name in batch.end)
        expected = {
            (name, shard): records
            for name, planner in self._planners.items()
            for shard, records in planner.outcome.expected.items()
        }
        is_limited = allowance.is_limited and allowance is not COUNTED
        carried = {
            (name, shard): records
            for name, planner in self._planners.items()
            for shard, records in planner.outcome.carried.items()
        }
        reports = self._reports(batch.taken if is_limited else None)
        end = start if is_same else batch.end
        return _PlannedBatch(start, end, batch.taken, reports, expected, carried)

    def _reports(self, filled: float | None) -> dict[str, StreamReport]:
        began = min(planner.began for planner in self._planners.values())
        took_ms = max(0, round(1000 * (self._timing.clock() - began)))
        return {
            name: StreamReport(
                millis_behind_latest=lag_report(planner.outcome.lags_ms),
                data_losses=planner.stream.losses.count,
                plan_millis=took_ms,
                probes=planner.stream.calls.probes,
                throttled=planner.stream.calls.throttled,
                ranges=len(planner.outcome.expected),
                filled=None if filled is None else round(filled, 3),
                sample=planner.outcome.sample,
            )
            for name, planner in self._planners.items()
            if planner.outcome.lags_ms or planner.stream.losses.count
        }


def _tools(address: StreamAddress, options: StreamReadOptions, timing: Timing) -> StreamTools:
    calls = PlanCalls()
    client = StreamClient(address, metrics=calls)
    return StreamTools(client, options, timing=timing, calls=calls)
