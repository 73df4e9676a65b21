"""Plans the batches of one query: a planner for each of its streams, and one offset for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sparkinesis.source.admission import NO_LIMIT, Allowance
from sparkinesis.source.offsets import Offset, Positions
from sparkinesis.source.options import StreamReadOptions
from sparkinesis.source.stream_planner import SMALLEST_PART, StreamPlanner
from sparkinesis.stream.client import StreamClient

_T = TypeVar("_T")


class SourcePlanner:
    """What the driver knows of a query's streams between two batches. Owned by one thread."""

    def __init__(
        self,
        options: StreamReadOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._initial = options.initial_positions
        streams = options.reading.streams
        self._planners = {
            name: StreamPlanner(
                StreamClient(address),
                pace=options.reading.pace,
                period=options.min_fetch_period,
                fail_on_data_loss=options.reading.fail_on_data_loss,
                deaggregate=options.reading.deaggregate,
                dynamodb_endpoint=options.dynamodb_endpoint,
                skip_older_than=options.skip_older_than,
                is_only_stream=len(streams) == 1,
                clock=clock,
                sleep=sleep,
            )
            for name, address in streams.items()
        }

    def stop_at_present(self) -> None:
        """From now on plan as if nothing arrived after this instant, and without pauses."""
        self._for_each(lambda _, planner: planner.stop_at_present())

    def next_offset(self, start: Offset, allowance: Allowance = NO_LIMIT) -> Offset:
        """Where the batch that begins at ``start`` ends; ``start`` itself when there is no row."""
        added = {name: self._initial for name in self._planners if name not in start}
        if added:
            # Into the checkpoint first: where they begin must not hang on options at a replay.
            return {**start, **added}
        if allowance.is_limited:
            ends = self._next_within(start, allowance)
        else:
            ends = self._for_each(lambda name, planner: planner.next_offset(start[name]))
        return start if all(ends[name] is start[name] for name in ends) else ends

    def _next_within(self, start: Offset, allowance: Allowance) -> Offset:
        """Streams share by their shards. Those that keep up come first, and leave what they can."""
        ends: dict[str, Positions] = {}
        left = 1.0
        names = sorted(self._planners, key=lambda name: self._planners[name].worst_lag_ms)
        for place, name in enumerate(names):
            planner = self._planners[name]
            shards = [len(start[other]) for other in names[place:]]
            part = max(left, SMALLEST_PART) * shards[0] / sum(shards)
            ends[name] = planner.next_offset(start[name], allowance.share(part))
            left -= planner.taken * part
        return ends

    @property
    def lag(self) -> dict[str, dict[str, dict[str, float]]]:
        """By stream, how far behind its tip the last planned batch ends: max and mean of shards."""
        return {
            name: {"millisBehindLatest": {"max": max(lags), "mean": round(sum(lags) / len(lags))}}
            for name, planner in self._planners.items()
            if (lags := list(planner.lags_ms.values()))
        }

    def _for_each(self, call: Callable[[str, StreamPlanner], _T]) -> Mapping[str, _T]:
        """The result for each stream; several streams are looked at side by side."""
        if len(self._planners) == 1:
            return {name: call(name, planner) for name, planner in self._planners.items()}
        with ThreadPoolExecutor(len(self._planners)) as pool:
            results = pool.map(call, self._planners, self._planners.values())
            return dict(zip(self._planners, results, strict=True))
