"""P10 and P6: the instant at which a batch ends, chosen from what is known of the shards."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.planning.batch_instant import Bounds, Choice, ReadOn, SampleAt, choose
from sparkinesis.source.planning.probing.arrival_density import Window, add_sample, add_window
from sparkinesis.source.planning.probing.survey import (
    SAMPLE_LIMITS,
    Survey,
    density_window,
    last_windows,
    sample_place,
)

START = 1_790_000_000_000
FIRST = 1_000
END = START + 10**9


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
    hand = list(range(10))
    few, many = (
        Survey(hand, [0.01 * (n + 1) for n in hand], 9, windows, samples=samples)
        for samples in (19, 20)
    )
    limits = Bounds(2000, {"a": 2000})
    assert isinstance(choose({"a": few}, limits).wanted["a"], SampleAt)
    assert isinstance(choose({"a": many}, limits).wanted["a"], ReadOn)


def test_without_a_limit_all_is_taken_by_the_bound() -> None:
    surveys = {"a": Survey([5, 7], [0.0, 0.0], in_hand_until=6), "b": Survey()}
    choice = choose(surveys, bounds(surveys, 1000))
    assert (choice.instant, choice.wanted) == (1000, {})


class Backlog:
    """A shard's records, of which a plan knows what it has looked at."""

    def __init__(self, arrivals: list[int], weight: float) -> None:
        self.arrivals = arrivals
        self.weight = weight
        self.in_hand = FIRST
        self.windows: list[Window] = []
        self.is_bursty = False
        self.samples = 0
        self.looked_at = FIRST

    def look(self, wanted: ReadOn | SampleAt) -> None:
        if isinstance(wanted, ReadOn):
            more = min(int(wanted.weight / self.weight) + 1, 10_000)
            self.in_hand += more
            self.looked_at += more
            return
        last = self.windows[-1] if self.windows else self.survey.windows[0]
        tip = self.arrivals[-1] + 1
        instant, size = sample_place(wanted.instant, wanted.weight, self.weight, last, tip)
        found, window = self.sample(instant, size)
        while window is None and size < SAMPLE_LIMITS[1]:
            size *= 2
            found, window = self.sample(instant, size)
        self.samples += 1
        self.looked_at += len(found)
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
            shards[shard].look(wanted)
    raise AssertionError("the looks do not end")


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
    assert sum(backlog.looked_at for backlog in backlogs.values()) <= 0.5 * limit + FIRST * shards
