"""The tools for planning a stream's batches: client, options, checks, budgets and counters."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property

from sparkinesis.metrics.catalogue import CALL_DURATION
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Labels, NoMetrics
from sparkinesis.source.options.checked_options import StreamReadOptions
from sparkinesis.source.planning.probe_threads import ProbeThreads
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.timing import MACHINE, Timing


class Losses:
    """The number of losses that the query went on from. For the threads of probers."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1


class PlanCalls(NoMetrics):
    """The numbers of calls of a stream's plans since the query's start. For any thread."""

    def __init__(self) -> None:
        self.probes = 0
        """Attempts of GetRecords."""
        self.throttled = 0
        """Attempts of any call that Kinesis throttled."""
        self._lock = threading.Lock()

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        del value
        if histogram is not CALL_DURATION:
            return
        _, _, operation, result = labels
        with self._lock:
            self.probes += operation == "GetRecords"
            self.throttled += result == "throttled"


@dataclass(frozen=True)
class StreamTools:
    """The tools of every plan of one stream, and the losses that plans found in it."""

    client: StreamClient
    options: StreamReadOptions
    is_batch_read: bool = False
    """True if shards missing from the start are left out on purpose, and no later read catches
    up."""
    timing: Timing = MACHINE
    threads: ProbeThreads = field(default_factory=ProbeThreads)
    losses: Losses = field(default_factory=Losses)
    calls: PlanCalls = field(default_factory=PlanCalls)
    """The calls of ``client``, if it was made with these as its metrics."""

    @cached_property
    def stored_check(self) -> RetentionCheck:
        """The check of a start that was stored, or that a user has named shard by shard."""
        return RetentionCheck(
            self.client,
            self.options.reading.fail_on_data_loss,
            logs_doubt=not self.is_batch_read,
            on_accepted=self.losses.add,
        )

    @cached_property
    def initial_check(self) -> RetentionCheck:
        """The check of an initial start: it may be older than the oldest record, without a loss."""
        return RetentionCheck(self.client, fail_on_data_loss=False)

    def budget(self) -> ShardBudget:
        """Return a new budget of calls of one shard."""
        return ShardBudget(self.pace(is_alone=False), self.timing.clock, self.timing.sleep)

    def pace(self, *, is_alone: bool) -> Pace:
        """Return the pace of the planner's calls on a shard: twice its third if no task reads."""
        pace = self.options.reading.pace
        if not is_alone:
            return pace
        return Pace(2 * pace.calls_per_second, pace.bytes_per_second)
