"""Plans the batches of one query: a planner for each of its streams, and one offset for all."""

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
"""A batch with this part of what is allowed, or more, says that there is a backlog."""


@dataclass(frozen=True, slots=True)
class _PlannedBatch:
    """What a plan found: where the batch ends, its part of what is allowed, and the lag then."""

    end: Offset
    taken: float
    lag: Lag
    expected: Mapping[tuple[str, str], int | None] = field(default_factory=dict)


class _BackgroundPlan:
    """A plan that is made by a thread of its own. The planners are that thread's until it ends."""

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
        # A daemon: a query that is stopped does not wait for a plan that nobody wants.
        self._thread = threading.Thread(target=self._run, name="plan-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._batch = self._plan(self.start, self.allowance)
        except Exception:  # noqa: BLE001 - what is wrong is found again, and told, when it matters
            _log.debug("A batch could not be planned ahead.", exc_info=True)

    def wait(self) -> _PlannedBatch | None:
        """The plan, once it is there; None if it failed."""
        self._thread.join()
        return self._batch


class SourcePlanner:
    """What the driver knows of a query's streams between two batches. Owned by one thread."""

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
        """By stream, the ARN of the consumer that reads it; none when the query polls.

        The first call registers them, and waits until they are ACTIVE. Raises `ConsumerLimitError`.
        """
        if self._fan_out is not None and len(self._consumers) < len(self._clients):
            name = self._fan_out.consumer_name

            def register(stream: str) -> None:
                self._consumers[stream] = register_consumer(self._clients[stream], name)

            self._has_registered = True
            self._for_each(register)
        return self._consumers

    def stop(self) -> None:
        """Plan no more, and deregister the query's consumers if it was told to."""
        if self._fan_out is None or not self._fan_out.deregister or not self._has_registered:
            return
        name = self._fan_out.consumer_name
        for stream, client in self._clients.items():
            try:
                if stream in self._consumers:
                    deregister_consumer(client, self._consumers[stream])
                # Not known when a stop comes while it is being created.
                elif consumer := describe_consumer(client, name, client.stream_arn()):
                    deregister_consumer(client, consumer.arn)
            except SparkinesisError as error:
                _log.warning(
                    "The consumer %s of %s may stay registered: %s", name, client.address, error
                )

    def stop_at_present(self) -> None:
        """From now on plan as if nothing arrived after this instant, and without pauses."""
        self._for_each(lambda stream: self._planners[stream].stop_at_present())

    def next_offset(self, start: Offset, allowance: Allowance = NO_LIMIT) -> Offset:
        """Where the batch that begins at ``start`` ends; ``start`` itself when there is no row.

        In a backlog the batch after it is planned while Spark runs this one.
        """
        self.consumers()  # what is wrong with them is told before anything is planned
        batch = self._planned_ahead(start, allowance) or self._plan(start, allowance)
        if allowance.is_limited and batch.taken >= FULL:
            self._ahead = _BackgroundPlan(batch.end, allowance, self._plan)
        self._planned = batch
        return batch.end

    def expected(self, end: Offset) -> Mapping[tuple[str, str], int | None]:
        """By stream and shard, about how many records the batch has that was planned to ``end``."""
        return self._planned.expected if self._planned and self._planned.end == end else {}

    @property
    def lag(self) -> Lag:
        """By stream, how far behind its tip the last planned batch ends: max and mean of shards."""
        return self._planned.lag if self._planned else {}

    def _planned_ahead(self, start: Offset, allowance: Allowance) -> _PlannedBatch | None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        batch = ahead.wait()
        fits = ahead.start == start and ahead.allowance == allowance
        # One that was not full would leave out what has arrived since.
        return batch if batch is not None and fits and batch.taken >= FULL else None

    def _plan(self, start: Offset, allowance: Allowance) -> _PlannedBatch:
        added = {name: self._initial for name in self._planners if name not in start}
        if added:
            # Into the checkpoint first: where they begin must not hang on options at a replay.
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
        """Streams share by their shards. Those that keep up come first, and leave what they can."""
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
        """The result for each stream; several streams are looked at side by side."""
        if len(self._planners) == 1:
            return {name: call(name) for name in self._planners}
        with ThreadPoolExecutor(len(self._planners)) as pool:
            results = pool.map(call, self._planners)
            return dict(zip(self._planners, results, strict=True))
