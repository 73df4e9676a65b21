"""P10 and P6: the instant at which a batch ends, chosen from what is known of the shards."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.planning.batch_instant import Bounds, Choice, ReadOn, SampleAt, choose
from sparkinesis.source.planning.probing.survey import (
    SAMPLE_LIMITS,
    Survey,
    Window,
    add_sample,
    add_window,
    density_window,
    last_windows,
    sample_place,
)

START = 1_790_000_000_000
FIRST = 1_000
END = START + 10**9
about: Any = pytest.approx


def known(arrivals: Sequence[int], weight: float, in_hand_until: float = math.inf) -> Survey:
    """A shard whose records are all in hand."""
    latest = list(itertools.accumulate(arrivals, max))
    return Survey(latest, [weight * (n + 1) for n in range(len(arrivals))], in_hand_until)


def given_by(choice: Choice[str], surveys: Mapping[str, Survey]) -> dict[str, int]:
    """The number of records of each shard in the batch."""
    assert not choice.wanted
    return {
        shard: choice.counts.get(shard, survey.count(choice.ends[shard]))
        for shard, survey in surveys.items()
    }


def bounds(surveys: Mapping[str, Survey], bound: int = END, drift: float = 0.0) -> Bounds[str]:
    return Bounds(bound, dict.fromkeys(surveys, bound), drift)


_arrivals = st.lists(st.integers(0, 50), max_size=30).map(sorted)


@given(st.dictionaries(st.sampled_from("abcd"), _arrivals, min_size=1), st.integers(1, 40))
def test_p10_what_is_left_arrived_no_earlier_than_what_is_taken(
    shards: dict[str, list[int]], limit: int
) -> None:
    surveys = {shard: known(arrivals, 1 / limit) for shard, arrivals in shards.items()}
    counts = given_by(choose(surveys, bounds(surveys, 45)), surveys)
    taken = [at for shard, count in counts.items() for at in shards[shard][:count]]
    left = [at for shard, count in counts.items() for at in shards[shard][count:]]
    assert max(taken, default=0) <= min(left, default=99)
    assert len(taken) <= limit
    there = [at for arrivals in shards.values() for at in arrivals if at <= 45]
    assert len(taken) == min(limit, len(there)), "as many as the limit allows"


def test_more_of_a_burst_is_read_before_it_is_divided() -> None:
    surveys = {"a": known([5, 5], 0.1, in_hand_until=4), "b": known([5] * 20, 0.1)}
    choice = choose(surveys, bounds(surveys))
    wanted = choice.wanted["a"]
    assert isinstance(wanted, ReadOn)
    assert wanted.weight == pytest.approx(0.8)


def test_drift_takes_no_shard_further_than_it_may_be_read() -> None:
    surveys = {"a": known(range(1000), 0.001), "b": known(range(1000), 0.001)}
    furthest = Bounds(500, {"a": 550, "b": 900}, 300.0)
    choice = choose({"a": surveys["a"]}, furthest)
    assert choice.ends == {"a": 550}
    assert choose({"b": surveys["b"]}, furthest).ends == {"b": 800}


def test_records_behind_a_sample_are_not_found_by_reading_on_from_the_start() -> None:
    windows = [Window(0, 10, 0.1, 0.01), Window(1000, 1010, 0.1, 0.0001)]
    survey = Survey(list(range(10)), [0.01 * (n + 1) for n in range(10)], 9, windows, cheap=0.9)
    wanted = choose({"a": survey}, Bounds(2000, {"a": 2000})).wanted
    assert isinstance(wanted["a"], ReadOn), "the gap behind the records in hand"
    behind = Survey(
        survey.arrivals, survey.weights, 9, [windows[0], Window(11, 1010, 0.2, 0.0004)], cheap=0.9
    )
    wanted = choose({"a": behind}, Bounds(2000, {"a": 2000})).wanted
    assert isinstance(wanted["a"], SampleAt)


def test_after_twenty_samples_the_records_are_counted() -> None:
    windows = [Window(0, 10, 0.1, 0.01), Window(1000, 1010, 0.1, 0.0001)]
    first = list(range(10))
    few, many = (
        Survey(first, [0.01 * (n + 1) for n in first], 9, windows, samples=samples)
        for samples in (19, 20)
    )
    limits = Bounds(2000, {"a": 2000})
    choice = choose({"a": few}, limits)
    end = choice.ends["a"]
    gap = few.weight(end) - 0.1
    # A twentieth of what is unknown, at its golden section.
    assert choice.wanted == {"a": SampleAt(10 + int(0.382 * (end - 10)), about(gap / 20))}
    assert choose({"a": many}, limits).wanted == {"a": ReadOn(about(gap))}
    near = Survey(first, few.weights, 9, windows, cheap=gap, samples=19)
    assert choose({"a": near}, limits).wanted == {"a": ReadOn(about(gap))}


def test_without_a_limit_all_is_taken_by_the_bound() -> None:
    surveys = {"a": Survey([5, 7], [0.0, 0.0], in_hand_until=6), "b": Survey()}
    choice = choose(surveys, bounds(surveys, 1000))
    assert (choice.instant, choice.wanted) == (1000, {})


LIMIT = 1.000_000_001
"""A full batch; many small weights do not add up exactly."""


def hand(*records: tuple[int, float], until: float = math.inf) -> Survey:
    """A shard of which the records up to an instant are in hand: arrival, and weight up to it."""
    return Survey([at for at, _ in records], [weight for _, weight in records], until)


def chosen(
    surveys: Mapping[str, Survey],
    bound: int = END,
    drift: float = 0.0,
    previous: Choice[str] | None = None,
) -> Choice[str]:
    return choose(surveys, bounds(surveys, bound, drift), previous)


def test_a_batch_holds_its_limit_to_a_billionth() -> None:
    full = chosen({"a": hand((5, LIMIT), (6, 2.0))})
    assert (full.instant, full.counts) == (5, {})
    burst = chosen({"a": hand((5, 0.5), (5, LIMIT), (5, 2.0))})
    assert (burst.instant, burst.counts) == (4, {"a": 2})
    drifting = choose({"a": hand((5, LIMIT))}, Bounds(3, {"a": 10}, 10.0))
    assert (drifting.instant, drifting.ends) == (3, {"a": 10})


def test_without_drift_all_shards_end_at_one_instant() -> None:
    surveys = {"a": known([1, 2, 3], 0.4), "b": known([3], 0.1)}
    choice = choose(surveys, Bounds(10, {"a": 10, "b": 10}))
    assert (choice.instant, choice.ends, choice.counts) == (2, {"a": 2, "b": 2}, {})
    assert choose({}, Bounds(5, {})) == Choice(5, {})


@pytest.mark.parametrize("drift", [30.0, 45.0, math.inf])
def test_with_drift_shards_go_on_up_to_the_weight_of_the_heaviest_one(drift: float) -> None:
    surveys = {
        "heavy": known(range(1000), 0.01),
        "light": known(range(0, 1000, 10), 0.01),
        "quiet": known([700, 701], 0.01),
        "empty": Survey(),
    }
    latest = {"heavy": 900, "light": 150, "quiet": 800, "empty": 900}
    choice = choose(surveys, Bounds(900, latest, drift))

    def taken(instant: int) -> dict[str, float]:
        most = max(survey.weight(instant) for survey in surveys.values())
        return {
            shard: min(survey.weight(max(instant, min(latest[shard], instant + drift))), most)
            for shard, survey in surveys.items()
        }

    assert sum(taken(choice.instant).values()) <= LIMIT < sum(taken(choice.instant + 1).values())
    assert {s: survey.weight(choice.ends[s]) for s, survey in surveys.items()} == taken(
        choice.instant
    )
    for shard, end in choice.ends.items():
        assert choice.instant <= end <= max(choice.instant, min(latest[shard], 150 + drift))


def test_where_nothing_has_arrived_by_the_bound_only_drift_reads_what_follows() -> None:
    surveys = {"a": known(range(10, 30), 0.1)}
    choice = choose(surveys, Bounds(5, {"a": 100}, math.inf))
    assert (choice.instant, choice.ends, choice.counts) == (5, {"a": 9}, {})


@pytest.mark.parametrize(
    ("weight", "until", "at", "bound", "stays"),
    [
        (0.92, 5, 20, 100, True),
        (0.919, 5, 20, 100, False),
        (1.0 + 0.03, 5, 20, 100, True),
        (1.031, 5, 20, 100, False),
        # The ends of what is in hand are known, so a better instant costs nothing.
        (0.95, 19, 20, 100, True),
        (0.95, 20, 20, 100, False),
        # The shard's end may have been found meanwhile.
        (1.02, 5, 60, 60, True),
        (1.02, 5, 60, 59, False),
    ],
)
def test_an_instant_whose_ends_are_known_stays_if_its_batch_is_about_full(
    weight: float, until: float, at: int, bound: int, stays: bool
) -> None:
    surveys = {"a": hand((10, weight), (50 if at == 20 else 60, 1.5), until=until)}
    if at == 60:
        surveys = {"a": hand((10, 0.5), (55, weight), until=until)}
    previous = Choice(at, {"a": at})
    choice = chosen(surveys, bound, previous=previous)
    assert (choice.instant == at) is stays
    assert (choice.ends == previous.ends) is stays
    both = {**surveys, "b": Survey()}
    choice = chosen(both, bound, previous=Choice(at, {"a": at, "b": at}))
    assert (choice.ends == {"a": at, "b": at}) is stays, "one estimated shard is enough"
    for others in ({"a": at, "b": at}, {}):
        choice = chosen(surveys, bound, previous=Choice(at, others))
        assert choice.instant != at, "another shard has been reached since"


def test_of_a_shard_with_few_records_the_next_ones_are_read_up_to_the_limit() -> None:
    few = hand((5, 0.1), (6, 0.2), (7, 0.3), until=6)
    assert chosen({"a": few}).wanted == {"a": ReadOn(0.7)}
    assert chosen({"a": hand((5, 0.1), until=4)}).wanted == {"a": ReadOn(0.9)}
    more = hand((5, 0.2), (6, 0.4), (7, 0.7), until=6)
    assert chosen({"a": more}).wanted == {"a": ReadOn(0.7)}
    assert chosen({"a": few}, bound=6).wanted == {}, "all that may be read is in hand"
    assert chosen({"a": few}, bound=7).wanted == {"a": ReadOn(0.7)}
    assert chosen({"a": Survey((), (), -math.inf)}).wanted == {}


def estimated(*windows: Window, cheap: float = 0.0, samples: int = 0) -> Survey:
    """A shard of which ten records of a thousandth are in hand, and windows of the others."""
    records = list(range(1, 11))
    weights = [number / 1000 for number in records]
    return Survey(records, weights, 9, windows, cheap=cheap, samples=samples)


HAND = Window(0, 10, 0.01, 0.001)


@pytest.mark.parametrize(
    ("cheap", "probe"), [(0.0, SampleAt(42, 0.031 * 0.05)), (0.031, ReadOn(0.031))]
)
def test_behind_the_last_window_a_shard_is_probed_where_it_would_end(
    cheap: float, probe: ReadOn | SampleAt
) -> None:
    surveys = {"a": estimated(HAND, cheap=cheap), "b": estimated(Window(0, 10, 0.01, 0.0))}
    assert chosen(surveys, 40).wanted == {}, "three hundredths are about nothing"
    wanted = chosen(surveys, 41).wanted
    assert wanted.keys() == {"a"}, "nothing is expected of the other one"
    assert type(wanted["a"]) is type(probe)
    assert wanted["a"].weight == pytest.approx(probe.weight)
    if isinstance(probe, SampleAt):
        assert wanted["a"] == SampleAt(42, about(probe.weight))
    halves = {"a": estimated(HAND), "b": estimated(HAND)}
    assert chosen(halves, 25).wanted == {}
    assert chosen(halves, 26).wanted.keys() == {"a", "b"}


def between(
    density: float, *windows: tuple[float, float], apart: int = 1000, doubt: float = 0.0
) -> Survey:
    """Windows after those in hand, so many milliseconds apart, of these weights and densities."""
    places = [10 + (apart + 10) * number for number in range(len(windows))]
    return estimated(
        Window(0, 10, 0.01, density),
        *(
            Window(place + apart, place + apart + 10, weight, its, doubt)
            for place, (weight, its) in zip(places, windows, strict=True)
        ),
    )


def test_a_shard_is_probed_once_in_a_round() -> None:
    # The first gap is a little worse than the second one.
    one = between(0.0004, (0.0925, 0.0004), (0.0925, 0.00038))
    assert chosen({"a": one}, 2030).wanted == {"a": SampleAt(10 + 382, about(0.02))}
    # What follows the last window comes first.
    one = between(0.0004, (0.45, 0.0004))
    assert chosen({"a": one}, 1320).wanted == {"a": SampleAt(1321, about(0.006))}
    assert chosen({"a": one}, 1020).wanted == {}


@pytest.mark.parametrize(("weight", "probes"), [(0.33, {"b"}), (0.29, set())])
def test_errors_of_gaps_are_independent_and_matter_where_the_limit_is_near(
    weight: float, probes: set[str]
) -> None:
    """Each is a fortieth, and both are a twenty-eighth, where three hundredths are accepted."""
    density = 0.3125 / 1000
    surveys = {"a": between(density, (weight, density)), "b": between(density, (0.02, density))}
    assert chosen(surveys, 1020).wanted.keys() == probes
    density = 0.375 / 1000
    assert chosen({"a": between(density, (0.6, density))}, 1020).wanted == {}


def test_the_worst_gap_is_probed_first() -> None:
    """Whether its error is one of its own, or is shared by all shards."""
    density = 0.373 / 1000
    surveys = {
        "own": between(density, (0.24, density)),
        "shared": between(0.00001, (0.3, 0.00001), apart=21_600_0, doubt=1.0),
    }
    choice = chosen(surveys, 216_020)
    assert choice.wanted.keys() == {"own"}


def test_what_a_straight_line_misses_adds_up_over_shards() -> None:
    """They have one course of a day: nine errors of 0.006 are 0.054."""
    one = between(0.00001, (0.0714, 0.000046))
    assert len(chosen({str(n): one for n in range(9)}, 1020).wanted) == 1
    assert not chosen({str(n): one for n in range(8)}, 1020).wanted


@pytest.mark.parametrize(("quiet", "probes"), [(0, 1), (18, 1), (19, 0), (99, 0)])
def test_a_long_time_may_hold_a_shards_share_of_a_batch(quiet: int, probes: int) -> None:
    """However few records are at its ends."""
    one = between(0.0, (0.96, 0.0), apart=21_600_000, doubt=1.0)
    choice = choose({"a": one}, Bounds(21_600_020, {"a": 21_600_020}, quiet=quiet))
    assert len(choice.wanted) == probes


def test_what_may_be_wrong_does_not_matter_while_all_of_it_is_within_the_limit() -> None:
    for weight, probes in ((0.74, 0), (0.76, 1)):
        one = between(0.0, (weight, 0.0), apart=5_400_000, doubt=1.0)
        assert len(chosen({"a": one}, 5_400_020).wanted) == probes


def test_no_burst_is_divided_where_weights_are_estimated() -> None:
    """How much is left is not known to a record."""
    surveys = {
        "a": known([at for at in range(2000) for _ in range(8)], 0.0001),
        "b": between(0.0002, (0.3, 0.0002)),
    }
    choice = chosen(surveys, 1020)
    assert (choice.wanted, choice.counts) == ({}, {})
    assert choice.ends == dict.fromkeys(surveys, choice.instant)
    assert 980 < choice.instant < 1000


def test_a_burst_is_divided_in_the_order_of_shards() -> None:
    """The first one that has no room ends the batch; one record is taken however large it is."""
    assert chosen({"b": known([5], 0.5), "a": known([1], 0.9)}).counts == {}
    assert chosen({"b": known([5], 3.0), "a": known([9], 0.1)}).counts == {"b": 1}
    assert chosen({"b": known([5], 3.0), "a": known([5], 3.0)}).counts == {"a": 1}
    # More of the first shard's burst may follow, for which a little is left.
    surveys = {"a": known([5, 5], 0.48, in_hand_until=4), "b": known([5] * 20, 0.01)}
    choice = chosen(surveys)
    assert (choice.counts, choice.wanted) == ({"a": 2}, {})
    later = chosen({"a": known([6], 0.1), "b": known([5] * 20, 0.1)})
    assert (later.instant, later.counts) == (4, {"b": 10})
    drifted = chosen({"b": known([1, 2, 3], 0.3), "a": known([1, 3, 4], 0.05)}, drift=9.0)
    assert (drifted.instant, drifted.ends, drifted.counts) == (2, {"b": 2, "a": 11}, {})


class Backlog:
    """A shard's records, of which a plan knows what it has probed."""

    def __init__(self, arrivals: list[int], weight: float) -> None:
        self.arrivals = arrivals
        self.weight = weight
        self.in_hand = FIRST
        self.windows: list[Window] = []
        self.is_bursty = False
        self.samples = 0
        self.probed = FIRST

    def probe(self, wanted: ReadOn | SampleAt) -> None:
        if isinstance(wanted, ReadOn):
            more = min(int(wanted.weight / self.weight) + 1, 10_000)
            self.in_hand += more
            self.probed += more
            return
        last = self.windows[-1] if self.windows else self.survey.windows[0]
        tip = self.arrivals[-1] + 1
        instant, size = sample_place(wanted.instant, wanted.weight, self.weight, last, tip)
        found, window = self.sample(instant, size)
        while window is None and size < SAMPLE_LIMITS[1]:
            size *= 2
            found, window = self.sample(instant, size)
        self.samples += 1
        self.probed += len(found)
        if found and found[-1] is self.arrivals[-1]:
            for one in last_windows(instant, found, [self.weight] * len(found), tip):
                self.add(one)
        elif window is None:
            self.is_bursty = True
        else:
            self.add(window)

    def add(self, window: Window) -> None:
        if self.survey.windows:
            self.windows = add_sample([self.survey.windows[0], *self.windows], window)[1:]

    def sample(self, instant: int, size: int) -> tuple[list[int], Window | None]:
        first = bisect.bisect_left(self.arrivals, instant)
        found = self.arrivals[first : first + size]
        return found, density_window(instant, found, [self.weight] * len(found))

    @property
    def survey(self) -> Survey:
        hand = self.arrivals[: self.in_hand]
        weights = [self.weight * (n + 1) for n in range(len(hand))]
        if self.in_hand >= len(self.arrivals):
            return Survey(hand, weights)
        first = density_window(hand[0], hand, [self.weight] * len(hand))
        windows = [] if first is None or self.is_bursty else add_window(self.windows, first)
        return Survey(hand, weights, hand[-1] - 1, windows, samples=self.samples)


def plan(shards: Mapping[str, Backlog], bound: int) -> Choice[str]:
    choice: Choice[str] | None = None
    for _ in range(100):
        surveys = {shard: backlog.survey for shard, backlog in shards.items()}
        choice = choose(surveys, bounds(surveys, bound), choice)
        if not choice.wanted:
            return choice
        for shard, wanted in choice.wanted.items():
            shards[shard].probe(wanted)
    raise AssertionError("the probes do not end")


def one_by_one(rng: random.Random, count: int) -> list[int]:
    gaps = (rng.expovariate(1 / 50) for _ in range(count))
    return [START + int(at) for at in itertools.accumulate(gaps)]


def in_bursts(rng: random.Random, count: int) -> list[int]:
    at = float(START)
    found: list[int] = []
    while len(found) < count:
        found += sorted(int(at + rng.random() * 5) for _ in range(rng.randrange(20, 60)))
        at += 60_000
    return found


def ever_denser(rng: random.Random, count: int) -> list[int]:
    gaps = (rng.expovariate((1 + 20 * n / count) / 500) for n in range(count))
    return [START + int(at) for at in itertools.accumulate(gaps)]


@pytest.mark.parametrize("arrivals", [one_by_one, in_bursts, ever_denser])
@pytest.mark.parametrize("limit", [10_000, 50_000])
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("seed", range(2))
def test_p6_a_sampled_batch_holds_the_limit_and_fills_it(
    arrivals: Callable[[random.Random, int], list[int]], limit: int, shards: int, seed: int
) -> None:
    rng = random.Random(seed)
    backlogs = {
        f"shard-{n}": Backlog(arrivals(rng, 120_000 // shards // (n + 1)), 1 / limit)
        for n in range(shards)
    }
    bound = min(backlog.arrivals[-1] for backlog in backlogs.values())
    choice = plan(backlogs, bound)
    taken = sum(
        bisect.bisect_right(b.arrivals, choice.ends[shard]) for shard, b in backlogs.items()
    )
    assert taken <= 1.1 * limit
    assert taken >= 0.8 * limit or choice.instant == bound
    assert len(set(choice.ends.values())) == 1
    assert sum(backlog.probed for backlog in backlogs.values()) <= 0.5 * limit + FIRST * shards
