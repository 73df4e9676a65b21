"""Plans one batch over all streams of a query, so that its shards advance in time together (P10).

`plan_batch` is the course of a plan: probe the shards of each stream, choose the instant at which
the batch ends, find where it ends in each shard, and assemble the offset. What becomes known on the
way may move the instant, so choosing and finding take turns.

A record's weight is its share of the batch's limit; 1.0 is a full batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sparkinesis.errors import SparkinesisError
from sparkinesis.source.offsets import Offset, start_of
from sparkinesis.source.options.checked_options import NO_LIMIT, Allowance
from sparkinesis.source.planning.batch_instant import Bounds, Choice, choose
from sparkinesis.source.planning.probe_threads import ProbeThreads
from sparkinesis.source.planning.probing.survey import Survey
from sparkinesis.source.planning.stream_plan import StreamPlan
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.position import END_OF_TIME_MS

# Why one instant for all shards, and not a share of the limit for each
#
# The limit of a batch was shared by the shards. A light shard was then read to its tip in the first
# batch of a backlog, Spark's watermark followed it, and what the busy shard gave later was dropped
# as late: 49,201 of 61,200 records of a windowed count (dc1442ea). So a batch holds what arrived by
# one instant in all shards of all streams, and no later batch has a row that arrived before it.
#
# What has to hold in the loop of `_choose_and_find`:
#
# - All streams begin before one is planned. A stream whose start is not known yet may begin with
#   rows that arrived before those of all others, so no stream has rows in that batch.
# - Each round starts from fresh surveys. A search for an end may meet the tip or the end of a
#   shard, which moves what the batch may hold. When a survey stayed as it was, a plan could ask for
#   probes that add nothing (11fc11eb).
# - A shard that ends bounds the batch before the first record of its children, which enter the next
#   batch. The end may be met only by the search, so an instant is confirmed, not just chosen. A
#   merged child whose other parent still looked open gave rows that arrived before those of an
#   earlier batch (ea566a76).
# - A plan that cannot decide raises an error after `MAX_ROUNDS` without a new record. It looped for
#   ever before (f82bceec).
#
# The price: all shards are in every batch. `maxShardDrift` relaxes the rule.

_T = TypeVar("_T")

_Shard: TypeAlias = tuple[str, str]
"""A stream's name and a shard's id."""

MAX_ROUNDS = 500
"""The most consecutive rounds of a plan that bring no new record in hand.

Such a round takes a sample of each shard whose density is not clear, or finds that shards end
before the instant. All shards take their samples in the same rounds, at most `MAX_SAMPLES` (20)
each; then their records are read, which counts as progress. All closed shards are asked for their
ends in one round, so each further round is one more generation of children. Plans of the tests and
of simulated queries need four.
"""

MAX_NAMED = 10
"""The most shards to name in an error; a stream may have thousands."""


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
    *,
    threads: ProbeThreads | None = None,
) -> AlignedBatch:
    """Plan the batch that begins at ``start``, a position for each of the planners' streams.

    The batch has about as many records as ``allowance``, if they exist, and at least one. drift:
    the seconds by which shards may be apart at its end. least_rows: approximately the fewest rows
    of a batch; it takes effect if ``allowance`` is limited. threads: probe several streams at once.
    """
    threads = threads or ProbeThreads()
    begun = threads.results(planners, lambda name: planners[name].begin(start[name], allowance))
    plans = {name: plan for name, plan in begun.items() if isinstance(plan, StreamPlan)}
    if len(plans) < len(planners):
        # A stream whose start is not known yet may begin with rows that arrived before all others.
        found = {name: to for name, to in begun.items() if not isinstance(to, StreamPlan)}
        return AlignedBatch({name: found.get(name, start[name]) for name in planners})
    if least_rows and _rows(plans) < least_rows:
        return AlignedBatch(start)  # the records in hand stay in hand
    choice, taken = _choose_and_find(plans, drift, threads)
    of_stream = _by_stream(choice, plans)
    return AlignedBatch(
        {
            name: planner.finish(plans[name], start[name], of_stream[name])
            for name, planner in planners.items()
        },
        taken,
    )


def _choose_and_find(
    plans: Mapping[str, StreamPlan], drift: float, threads: ProbeThreads
) -> tuple[Choice[_Shard], float]:
    """Return the choice whose ends were found in all shards, and its weight."""
    choice: Choice[_Shard] | None = None
    rounds = most = 0
    while rounds < MAX_ROUNDS:
        surveys = _surveys(plans)
        choice = choose(surveys, _bounds(plans, drift), choice)
        of_stream = _by_stream(choice, plans)
        if choice.wanted:
            to_probe = [name for name in plans if of_stream[name].wanted]
            threads.for_all(to_probe, lambda name: plans[name].extend(of_stream[name].wanted))  # noqa: B023
        else:
            moved = threads.those(
                plans,
                lambda name: not plans[name].confirm_instant(of_stream[name]),  # noqa: B023
            )
            if not moved:
                return choice, _weight(choice, surveys)
        in_hand = sum(len(survey.arrivals) for survey in surveys.values())
        rounds, most = (0, in_hand) if in_hand > most else (rounds + 1, most)
    assert choice is not None
    raise SparkinesisError(_undecided(plans, choice))


def _surveys(plans: Mapping[str, StreamPlan]) -> dict[_Shard, Survey]:
    return {
        (name, shard_id): survey
        for name, plan in plans.items()
        for shard_id, survey in plan.surveys.items()
    }


def _bounds(plans: Mapping[str, StreamPlan], drift: float) -> Bounds[_Shard]:
    return Bounds(
        min(plan.bound_ms for plan in plans.values()),
        {
            (name, shard_id): ms
            for name, plan in plans.items()
            for shard_id, ms in plan.latest_ms.items()
        },
        drift * 1000,
        sum(len(plan.quiet) for plan in plans.values()),
    )


def _rows(plans: Mapping[str, StreamPlan]) -> float:
    """Estimate the number of rows that a batch could have now; infinity if a shard ends."""
    if any(plan.ends_a_shard for plan in plans.values()):
        return math.inf
    latest = {name: plan.latest_ms for name, plan in plans.items()}
    return sum(
        survey.weight(latest[name][shard_id]) * survey.rows_per_weight
        for (name, shard_id), survey in _surveys(plans).items()
    )


def _weight(choice: Choice[_Shard], surveys: Mapping[_Shard, Survey]) -> float:
    return sum(
        survey.weights[choice.counts[key] - 1]
        if key in choice.counts
        else survey.weight(choice.ends[key])
        for key, survey in surveys.items()
    )


def _by_stream(choice: Choice[_Shard], streams: Iterable[str]) -> dict[str, Choice[str]]:
    """Return each stream's part of a choice."""
    ends, wanted, counts = _split(choice.ends), _split(choice.wanted), _split(choice.counts)
    return {
        name: Choice(choice.instant, ends.get(name, {}), wanted.get(name, {}), counts.get(name, {}))
        for name in streams
    }


def _split(found: Mapping[_Shard, _T]) -> dict[str, dict[str, _T]]:
    """Return values by stream and shard as values by shard, by stream."""
    streams: dict[str, dict[str, _T]] = {}
    for (name, shard_id), value in found.items():
        streams.setdefault(name, {})[shard_id] = value
    return streams


def _undecided(plans: Mapping[str, StreamPlan], choice: Choice[_Shard]) -> str:
    """Return the text of the error for a batch whose end is not found."""
    wanted = {name for name, _ in choice.wanted}
    behind = {
        name: plan
        for name, plan in plans.items()
        if plan.bound_ms < choice.instant or name in wanted
    }
    shards = [
        f"{shard_id} of stream {name!r} from {start_of(plan.start, shard_id)}, known up to "
        f"{'its end' if ms == END_OF_TIME_MS else ms}"
        for name, plan in behind.items()
        for shard_id, ms in sorted(plan.latest_ms.items())
    ]
    bounds = [f"stream {name!r} could end at {plan.bound_ms}" for name, plan in behind.items()]
    return (
        f"The end of the next batch was not found: {MAX_ROUNDS} rounds have brought no new "
        f"record, and do not confirm the instant {choice.instant} (epoch ms); "
        f"{' and '.join(bounds)}. The batch has {len(shards)} shards with records there: shard "
        f"{'; shard '.join(shards[:MAX_NAMED])}. Nothing was read or stored: restart the query, "
        "which plans the batch anew. If the error comes again, the server answers as no Kinesis "
        "does, or the planner has a mistake: report this text."
    )
