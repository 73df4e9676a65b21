"""Plans the batches of a query: one planner for each stream, and one offset for all of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from sparkinesis.errors import SparkinesisError
from sparkinesis.source.offsets import Offset, Positions
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.options.read_options import StreamReadOptions
from sparkinesis.source.planning.stream_planner import MIN_PART, StreamPlanner
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.consumers import describe_consumer
from sparkinesis.stream.fan_out.registration import deregister_consumer, register_consumer
from sparkinesis.stream.timing import MACHINE, Timing

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


Lag: TypeAlias = Mapping[str, Mapping[str, Mapping[str, int]]]

FULL = 0.8
"""The share of the allowance from which on a batch is taken as the sign of a backlog."""


@dataclass(frozen=True, slots=True)
class _PlannedBatch:
    """A planned batch: its end, its share of the allowance, and the lag at its end."""

    end: Offset
    taken: float
    lag: Lag
    expected: Mapping[tuple[str, str], int | None] = field(default_factory=dict)


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


class SourcePlanner:
    """The planner of a query, which keeps its state between batches. Owned by one thread."""

    def __init__(self, options: StreamReadOptions, timing: Timing = MACHINE) -> None:
        self._initial = options.initial_positions
        self._ahead: _BackgroundPlan | None = None
        self._planned: _PlannedBatch | None = None
        self._fan_out = options.fan_out
        self._has_registered = False
        self._consumers: dict[str, str] = {}
        streams = options.reading.streams
        self._clients = {name: StreamClient(address) for name, address in streams.items()}
        self._planners = {
            name: StreamPlanner(client, options, timing=timing)
            for name, client in self._clients.items()
        }

    def consumers(self) -> Mapping[str, str]:
        """Return the ARN of the consumer of each stream; empty when the query polls.

        The first call registers the consumers, and waits until they are ACTIVE. Raises
        `ConsumerLimitError`.
        """
        if self._fan_out is not None and len(self._consumers) < len(self._clients):
            name = self._fan_out.consumer_name

            def register(stream: str) -> None:
                self._consumers[stream] = register_consumer(self._clients[stream], name)

            self._has_registered = True
            self._for_each(register)
        return self._consumers

    def stop(self) -> None:
        """Stop, and deregister the query's consumers if the options say so."""
        if self._fan_out is None or not self._fan_out.deregister or not self._has_registered:
            return
        name = self._fan_out.consumer_name
        for stream, client in self._clients.items():
            try:
                if stream in self._consumers:
                    deregister_consumer(client, self._consumers[stream])
                # The ARN is not known yet if the query stops while the consumer is created.
                elif consumer := describe_consumer(client, name, client.stream_arn()):
                    deregister_consumer(client, consumer.arn)
            except SparkinesisError as error:
                _log.warning(
                    "The consumer %s of %s could not be deregistered: %s",
                    name,
                    client.address,
                    error,
                )

    def stop_at_present(self) -> None:
        """Plan from now on as if nothing arrived after this instant, and without pauses."""
        self._for_each(lambda stream: self._planners[stream].stop_at_present())

    def next_offset(self, start: Offset, allowance: Allowance = NO_LIMIT) -> Offset:
        """Return the end of the batch that begins at ``start``; ``start`` itself without rows.

        In a backlog the next batch is planned while Spark runs this one.
        """
        self.consumers()  # raises their errors before anything is planned
        batch = self._planned_ahead(start, allowance) or self._plan(start, allowance)
        if allowance.is_limited and batch.taken >= FULL:
            self._ahead = _BackgroundPlan(batch.end, allowance, self._plan)
        self._planned = batch
        return batch.end

    def expected(self, end: Offset) -> Mapping[tuple[str, str], int | None]:
        """Return the approximate number of records of the batch to ``end``, by stream and shard."""
        return self._planned.expected if self._planned and self._planned.end == end else {}

    @property
    def lag(self) -> Lag:
        """The lag behind the tip at the last batch's end, by stream: max and mean of shards."""
        return self._planned.lag if self._planned else {}

    def _planned_ahead(self, start: Offset, allowance: Allowance) -> _PlannedBatch | None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        batch = ahead.wait()
        fits = ahead.start == start and ahead.allowance == allowance
        # A batch that was not full would leave out the records that have arrived since.
        return batch if batch is not None and fits and batch.taken >= FULL else None

    def _plan(self, start: Offset, allowance: Allowance) -> _PlannedBatch:
        added = {name: self._initial for name in self._planners if name not in start}
        if added:
            # The checkpoint stores their start first: a replay must not depend on the options.
            return _PlannedBatch({**start, **added}, 0.0, {})
        taken = 0.0
        if allowance.is_limited:
            ends, taken = self._plan_within(start, allowance)
        else:
            ends = self._for_each(lambda name: self._planners[name].next_offset(start[name]))
        is_same = all(ends[name] is start[name] for name in ends)
        expected = {
            (name, shard): records
            for name, planner in self._planners.items()
            for shard, records in planner.expected.items()
        }
        return _PlannedBatch(start if is_same else ends, taken, self._lags(), expected)

    def _plan_within(self, start: Offset, allowance: Allowance) -> tuple[Offset, float]:
        """Divide the allowance by shards; streams that keep up come first and pass on the rest."""
        ends: dict[str, Positions] = {}
        left = 1.0
        names = sorted(self._planners, key=lambda name: self._planners[name].worst_lag_ms)
        for place, name in enumerate(names):
            planner = self._planners[name]
            shards = [len(start[other]) for other in names[place:]]
            part = max(left, MIN_PART) * shards[0] / sum(shards)
            ends[name] = planner.next_offset(start[name], allowance.share(part))
            left -= planner.taken * part
        return ends, 1.0 - left

    def _lags(self) -> Lag:
        return {
            name: {"millisBehindLatest": {"max": max(lags), "mean": round(sum(lags) / len(lags))}}
            for name, planner in self._planners.items()
            if (lags := list(planner.lags_ms.values()))
        }

    def _for_each(self, call: Callable[[str], _T]) -> Mapping[str, _T]:
        """Call for each stream, in parallel, and return the results."""
        if len(self._planners) == 1:
            return {name: call(name) for name in self._planners}
        with ThreadPoolExecutor(len(self._planners)) as pool:
            results = pool.map(call, self._planners)
            return dict(zip(self._planners, results, strict=True))
