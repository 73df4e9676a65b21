"""Plans one batch over all streams of a query, so that its shards advance in time together (P10).

The planners of the streams look at their shards. `sparkinesis.source.planning.batch_instant`
chooses the instant at which the batch ends, and says which looks it needs first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from sparkinesis.source.offsets import Offset, Positions
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.planning.batch_instant import Choice, Reach, choose
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.source.planning.survey import Survey

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class AlignedBatch:
    """The end of a batch."""

    end: Offset
    """The stream's own start, the same object, where a stream has nothing new."""
    taken: float = 0.0
    """The share of the allowance that the batch uses; 1.0 is all."""


def plan_batch(
    planners: Mapping[str, StreamPlanner],
    start: Offset,
    allowance: Allowance = NO_LIMIT,
    drift: float = 0.0,
    least_rows: int = 0,
) -> AlignedBatch:
    """Plan the batch that begins at ``start``, a position for each of the planners' streams.

    The batch has about as many records as ``allowance``, if they exist, and at least one. drift:
    the seconds by which shards may be apart at its end. least_rows: the fewest rows of a batch,
    about; it takes effect if ``allowance`` is limited.
    """
    to_store = for_each(planners, lambda name: planners[name].begin(start[name], allowance))
    if any(found is not None for found in to_store.values()):
        # A stream whose start is not known yet may begin with rows that arrived before all others.
        return AlignedBatch({name: found or start[name] for name, found in to_store.items()})
    choice: Choice[tuple[str, str]] | None = None
    while True:
        surveys = {
            (name, shard_id): survey
            for name, planner in planners.items()
            for shard_id, survey in planner.surveys.items()
        }
        latest = {
            (name, shard_id): ms
            for name, planner in planners.items()
            for shard_id, ms in planner.latest_ms.items()
        }
        bound = min(planner.bound_ms for planner in planners.values())
        if choice is None and least_rows:
            has_ends = any(planner.ends_a_shard for planner in planners.values())
            if not has_ends and _rows(surveys, latest) < least_rows:
                return AlignedBatch(start)  # the records in hand stay in hand
        quiet = sum(planner.quiet_shards for planner in planners.values())
        choice = choose(surveys, Reach(bound, latest, drift * 1000, quiet), choice)
        if choice.wanted:
            wanted = _by_stream(choice.wanted)
            for_each(wanted, lambda name: planners[name].extend(wanted[name]))  # noqa: B023
            continue
        ends, counts = _by_stream(choice.ends), _by_stream(choice.counts)
        choices = {
            name: Choice(choice.instant, ends.get(name, {}), counts=counts.get(name, {}))
            for name in planners
        }
        for_each(planners, lambda name: planners[name].find_ends(choices[name]))  # noqa: B023
        if all(planner.bound_ms >= choice.instant for planner in planners.values()):
            break
    taken = sum(
        survey.weights[choice.counts[key] - 1]
        if key in choice.counts
        else survey.weight(choice.ends[key])
        for key, survey in surveys.items()
    )
    return AlignedBatch({name: planners[name].finish(choices[name]) for name in planners}, taken)


def _rows(
    surveys: Mapping[tuple[str, str], Survey], latest: Mapping[tuple[str, str], int]
) -> float:
    """Return the number of rows that a batch could have now, about."""
    return sum(
        survey.weight(latest[key]) * survey.rows_per_weight for key, survey in surveys.items()
    )


def _by_stream(found: Mapping[tuple[str, str], _T]) -> dict[str, dict[str, _T]]:
    """Return values by stream and shard as values by shard, by stream."""
    streams: dict[str, dict[str, _T]] = {}
    for (name, shard_id), value in found.items():
        streams.setdefault(name, {})[shard_id] = value
    return streams


def for_each(names: Iterable[str], call: Callable[[str], _T]) -> dict[str, _T]:
    """Call for each stream, in parallel, and return the results."""
    todo = list(names)
    if len(todo) <= 1:
        return {name: call(name) for name in todo}
    with ThreadPoolExecutor(len(todo)) as pool:
        return dict(zip(todo, pool.map(call, todo), strict=True))


def next_offset(planner: StreamPlanner, start: Positions, drift: float = 0.0) -> Positions:
    """Return the end of the batch from ``start`` of a single stream, or ``start`` itself.

    drift: as for `plan_batch`.
    """
    return plan_batch({"": planner}, {"": start}, drift=drift).end[""]
