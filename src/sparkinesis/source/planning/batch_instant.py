"""Chooses the instant at which a batch ends, for all shards of all streams at once. Pure.

A batch holds all that arrived by its instant, and no later batch has a row that arrived before it.
So no shard is read ahead of another, and a watermark on the arrival time drops nothing (P10). The
batch's limit is met by the choice of the instant: the latest one at which the weights of all shards
add up to 1.0. Where a single instant holds more than the limit, the records of that instant are
divided: shards come in order, and each shard's records too.

With ``maxShardDrift`` shards may go on after the instant, each up to the weight of the shard that
determines the instant: so a query that does not care for time reads light shards first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

from sparkinesis.source.planning.probing.survey import MAX_SAMPLES, Gap, Survey

# How a limit is met without counting, and what went wrong
#
# Kinesis cannot count records, and to read a backlog in order to divide it costs as much as its
# batches. So weights are estimated from samples, and the choice has to know how wrong they may be.
#
# - A gap of hours between two windows of few records is not quiet: it may be a day between two
#   nights, and a batch held the whole day. A gap counts as known only once a sample in it shows the
#   density that its ends let expect (`Gap.doubt`). Samples lie at the golden section, since halves
#   of halves could all be nights (ad1f9878).
# - The time between the instant that was asked for and a sample's first record is no silence. When
#   it counted as one, records that came in bursts of a minute were taken for half of what they
#   were: a batch had 113,685 rows instead of 80,000 (7393a15a).
# - Errors of gaps are independent, so their squares add up. But the shards of a stream follow the
#   same course of a day: what a straight line misses of it adds up, too (`Gap.curve`, 6def8bbf).
# - Behind the last window a sample is taken at the end of the batch, not in the middle: if the
#   instant stays, the sample also shows where the batch ends in the shard (6def8bbf).
# - An instant whose batch is about full is kept (`FULL_ENOUGH`): the ends of its shards are known,
#   and those of a slightly better instant are not.
#
# A planner that read on from the start where a gap was unclear read 164 MB to divide 320 MB of a
# day's backlog into four batches; this one reads 63 MB (6def8bbf). A batch that is in hand is
# exact.

K = TypeVar("K", str, tuple[str, str])

TOLERANCE = 0.03
"""The accepted error of a batch's estimated weight."""

CURVE_TOLERANCE = 0.05
"""The accepted error of a batch's weight if the densities of all shards curve the same way."""

SAMPLE_SHARE = 0.05
"""The size of a sample, as a share of the gap that it is taken in."""

GOLDEN = 0.382
"""The place of a sample in its gap. Halves, and halves of halves, could all be nights."""

FULL_ENOUGH = 0.92
"""The weight from which on a batch is full enough: its instant is not refined further."""

LIMIT = 1.000_000_001
"""The largest weight of a batch: 1.0, and the largest rounding error of many small weights."""


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Read the next records of a shard: too little is known to estimate, or little is missing."""

    weight: float
    """The missing weight, approximately."""


@dataclass(frozen=True, slots=True)
class SampleAt:
    """Read some records that arrived at an instant (epoch ms) or later."""

    instant: int
    weight: float
    """The approximate weight that the records should have."""


Wanted: TypeAlias = ReadOn | SampleAt


@dataclass(frozen=True, slots=True)
class Choice(Generic[K]):
    """The instant at which a batch ends, or the probes that must be made before it is known."""

    instant: int
    ends: Mapping[K, int]
    """The instant (epoch ms) at which the batch ends in each shard."""
    wanted: Mapping[K, Wanted] = field(default_factory=dict)
    counts: Mapping[K, int] = field(default_factory=dict)
    """The number of records in hand that a shard gives, where a burst is divided."""


@dataclass(frozen=True, slots=True)
class Bounds(Generic[K]):
    """How far a batch may go."""

    bound_ms: int
    """The latest instant (epoch ms) at which the batch may end."""
    latest_ms: Mapping[K, int]
    """The latest instant (epoch ms) up to which the batch may read each shard."""
    drift: float = 0.0
    """The time (ms) by which shards may go on after the batch's instant; may be infinity."""
    quiet: int = 0
    """The number of shards that have no records, and so no survey."""

    def latest_end(self, key: K, instant: int) -> int:
        """Return the latest end of a shard in a batch that ends at ``instant``."""
        return max(instant, math.floor(min(self.latest_ms[key], instant + self.drift)))


def choose(
    surveys: Mapping[K, Survey], bounds: Bounds[K], previous: Choice[K] | None = None
) -> Choice[K]:
    """Choose the latest instant within the limit.

    previous: the choice for which the last probes were made.
    """
    everything = _everything(surveys, bounds)
    if _weight_up_to(surveys, everything.ends) <= LIMIT:
        chosen = everything
    elif previous is not None and _is_still_good(surveys, bounds, previous):
        chosen = Choice(previous.instant, dict(previous.ends))
    else:
        chosen = _latest_within_limit(surveys, bounds)
    share = 1.0 / max(1, len(surveys) + bounds.quiet)
    total = _weight_up_to(surveys, chosen.ends)
    wanted = dict(_probes(surveys, chosen.ends, total, share))
    if wanted or chosen.ends == everything.ends:
        return replace(chosen, wanted=wanted)
    return _divide(surveys, chosen)


def _weight_up_to(surveys: Mapping[K, Survey], ends: Mapping[K, int]) -> float:
    return sum(survey.weight(ends[key]) for key, survey in surveys.items())


def _everything(surveys: Mapping[K, Survey], bounds: Bounds[K]) -> Choice[K]:
    """Return the choice of all that the batch may read, whatever it weighs."""
    instant = bounds.bound_ms
    return Choice(instant, {key: bounds.latest_end(key, instant) for key in surveys})


def _is_still_good(surveys: Mapping[K, Survey], bounds: Bounds[K], previous: Choice[K]) -> bool:
    """Return True if a choice stands after the probes that were made for it.

    So it does if weights are estimated and its batch is about full: its ends are known, and those
    of a slightly better instant are not.
    """
    ends = previous.ends
    return (
        previous.instant <= bounds.bound_ms
        and ends.keys() == surveys.keys()
        and any(survey.in_hand_until < ends[key] for key, survey in surveys.items())
        and FULL_ENOUGH <= _weight_up_to(surveys, ends) <= 1.0 + TOLERANCE
    )


def _latest_within_limit(surveys: Mapping[K, Survey], bounds: Bounds[K]) -> Choice[K]:
    """Return the choice of the latest instant up to which all shards weigh 1.0 at most.

    All that the batch may read weighs more, so there are records.
    """

    def total(instant: int) -> float:
        if not bounds.drift:
            return sum(survey.weight(instant) for survey in surveys.values())
        most = max(survey.weight(instant) for survey in surveys.values())
        return sum(
            min(survey.weight(bounds.latest_end(key, instant)), most)
            for key, survey in surveys.items()
        )

    firsts = [survey.arrivals[0] for survey in surveys.values() if survey.arrivals]
    before = min(bounds.bound_ms, min(firsts) - 1)
    instant = _last(before, bounds.bound_ms, lambda at: total(at) <= LIMIT)
    ends = dict.fromkeys(surveys, instant)
    if bounds.drift:
        most = max(survey.weight(instant) for survey in surveys.values())
        for key, survey in surveys.items():
            latest = bounds.latest_end(key, instant)
            ends[key] = _last(instant, latest, lambda at: survey.weight(at) <= most)  # noqa: B023
    return Choice(instant, ends)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the last of the integers from ``low`` to ``high`` for which a condition holds.

    It holds up to that integer, and for ``low`` at least.
    """
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _probes(
    surveys: Mapping[K, Survey], ends: Mapping[K, int], total: float, share: float
) -> Iterator[tuple[K, Wanted]]:
    """Yield the probes without which the weight up to the ends is not known well enough."""
    gaps: list[tuple[K, Gap]] = []
    open_ended: list[tuple[K, Gap]] = []
    for key, survey in surveys.items():
        if ends[key] <= survey.in_hand_until or not (survey.weights and survey.weights[-1]):
            continue
        if not survey.windows:
            yield key, ReadOn(max(1.0 - total, survey.weights[-1]))
            continue
        last = survey.windows[-1].end
        for gap in survey.gaps(ends[key]):
            (open_ended if gap.start >= last else gaps).append((key, gap))
    probed = set()
    if sum(gap.weight for _, gap in open_ended) > TOLERANCE:
        for key, gap in open_ended:
            if not gap.weight:
                continue
            if _is_cheap(surveys[key], gap):
                yield key, ReadOn(gap.weight)
            else:
                # At the end of the batch: if its instant stays, the sample shows the end, too.
                yield key, SampleAt(ends[key] + 1, gap.weight * SAMPLE_SHARE)
            probed.add(key)
    for key, gap in _unclear(gaps, total, share):
        if key not in probed:
            probed.add(key)
            yield key, _probe_into(surveys[key], gap)


def _unclear(gaps: Sequence[tuple[K, Gap]], total: float, share: float) -> Iterator[tuple[K, Gap]]:
    """Yield the gaps without which the weight is known well enough, the worst ones first.

    share: a shard's share of a batch, which a gap may hold however few records are at its ends.

    The errors of gaps are independent, so their squares add up. The shards of a stream often have
    one course of a day, so what a straight line misses of it adds up, too.
    """

    def curve_of(gap: Gap) -> float:
        return max(gap.curve, max(gap.weight, share) * gap.doubt)

    ranked = sorted(gaps, key=lambda item: max(item[1].error, curve_of(item[1])))
    square = curve = 0.0
    sums: list[tuple[tuple[K, Gap], float, float]] = []
    for item in ranked:
        square += item[1].error ** 2
        curve += curve_of(item[1])
        sums.append((item, math.sqrt(square), curve))
    for item, error, curve in reversed(sums):
        is_known = error <= TOLERANCE and curve <= CURVE_TOLERANCE
        if is_known or total + max(error, curve) <= 1.0:
            return
        yield item


def _probe_into(survey: Survey, gap: Gap) -> Wanted:
    """Return the probe that shows most of a gap between two windows."""
    if survey.samples >= MAX_SAMPLES:
        # Samples do not show how the records are spread, so count them.
        return ReadOn(survey.weight(gap.end) - survey.weights[-1])
    if _is_cheap(survey, gap):
        return ReadOn(gap.weight)
    inside = gap.start + GOLDEN * (gap.end - gap.start)
    return SampleAt(int(inside), gap.weight * SAMPLE_SHARE)


def _is_cheap(survey: Survey, gap: Gap) -> bool:
    """Return True if the records of a gap follow those in hand, and are as cheap as a sample."""
    return gap.start <= survey.windows[0].end and gap.weight <= survey.cheap


def _divide(surveys: Mapping[K, Survey], chosen: Choice[K]) -> Choice[K]:
    """Add as many of the records that arrived one ms after the instant as the limit leaves.

    Shards come in order, and each gives its whole burst before the next one gives a record. If 0.5
    is left, and the bursts of shards a and b have three records of 0.1 each, a gives three and b
    two; the third one of b is in the next batch.

    If too little of a shard's burst is in hand to fill the batch, the shard is probed first.
    """
    instant, ends = chosen.instant, chosen.ends
    if any(survey.in_hand_until < ends[key] for key, survey in surveys.items()):
        return chosen
    left = LIMIT - _weight_up_to(surveys, ends)
    has_rows = any(survey.count(ends[key]) for key, survey in surveys.items())
    counts: dict[K, int] = {}
    for key in sorted(surveys):
        survey = surveys[key]
        if ends[key] > instant:
            continue
        count, burst = survey.count(instant), survey.count(instant + 1)
        taken, weight = _take(survey, count, burst, left, takes_one=not has_rows)
        if taken > count:
            counts[key] = taken
            left -= weight
            has_rows = True
        if taken < burst:
            break
        if survey.in_hand_until <= instant:
            # More records of the burst follow in this shard; they come first.
            if left > 1.0 - FULL_ENOUGH:
                return replace(chosen, wanted={key: ReadOn(left)})
            break
    return replace(chosen, counts=counts)


def _take(
    survey: Survey, count: int, burst: int, left: float, *, takes_one: bool
) -> tuple[int, float]:
    """Take the records of a shard from number ``count`` to ``burst`` that weigh ``left`` at most.

    Returns the number up to which they are taken, and their weight. takes_one: the first one is
    taken whatever it weighs, as a batch has at least one record.
    """
    before = survey.weights[count - 1] if count else 0.0
    taken, weight = count, 0.0
    while taken < burst:
        more = survey.weights[taken] - before
        if more > left and not (takes_one and taken == count):
            break
        taken, weight = taken + 1, more
    return taken, weight
