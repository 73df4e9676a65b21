"""Slices: an end that holds about what is allowed, found by reading a tenth of it at most."""

from __future__ import annotations

import bisect
import random

import pytest

from sparkinesis.source.planning.sampling import Sample, SampledEnd, arrival_ms, sampled_end
from sparkinesis.stream.page import Record

START = 1_790_000_000_000
FIRST = 1_000


class Backlog:
    """A shard's records, by their arrival times (epoch ms, sorted); each takes the same share."""

    def __init__(self, arrivals: list[float], allowed: int) -> None:
        self.records = [
            Record(
                data=b"",
                partition_key="k",
                sequence_number=str(n),
                approximate_arrival_timestamp=at / 1000,
            )
            for n, at in enumerate(arrivals)
        ]
        self._arrivals = [arrival_ms(record) for record in self.records]
        self._weight = 1 / allowed
        self.tip = self._arrivals[-1] - 250
        self.sampled = 0

    def sample(self, instant: float, count: int) -> Sample | None:
        assert instant <= self.tip
        first = bisect.bisect_left(self._arrivals, int(instant))
        self.sampled += count
        return self._sample(instant, first, count) if first < len(self.records) else None

    def _sample(self, instant: float, first: int, count: int) -> Sample:
        records = self.records[first : first + count]
        is_all = first + count >= len(self.records)
        return Sample(instant, records, [self._weight] * len(records), is_all)

    def slice(self) -> SampledEnd | None:
        size = min(max(int(1 / self._weight / 40), 100), 1000)
        return sampled_end(self._sample(START, 0, FIRST), self.tip, self.sample, size)


def one_by_one(rng: random.Random, count: int) -> list[float]:
    at = float(START)
    found: list[float] = []
    for _ in range(count):
        found.append(at)
        at += rng.expovariate(1 / 50)
    return found


def in_bursts(rng: random.Random, count: int) -> list[float]:
    at = float(START)
    found: list[float] = []
    while len(found) < count:
        found += sorted(at + rng.random() * 5 for _ in range(rng.randrange(20, 60)))
        at += 60_000
    return found


def ever_denser(rng: random.Random, count: int) -> list[float]:
    at = float(START)
    found: list[float] = []
    for n in range(count):
        found.append(at)
        at += rng.expovariate((1 + 20 * n / count) / 500)
    return found


@pytest.mark.parametrize("arrivals", [one_by_one, in_bursts, ever_denser])
@pytest.mark.parametrize("allowed", [10_000, 50_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_slice_holds_what_is_allowed_within_ten_percent(
    arrivals: object, allowed: int, seed: int
) -> None:
    assert callable(arrivals)
    backlog = Backlog(arrivals(random.Random(seed), 120_000), allowed)
    found = backlog.slice()
    assert found is not None
    assert found.end is not None
    assert 0.9 <= (int(found.end.sequence_number) + 1) / allowed <= 1.1
    assert backlog.sampled <= 0.25 * allowed


def test_what_is_less_than_allowed_is_taken_whole() -> None:
    backlog = Backlog(one_by_one(random.Random(1), 50_000), 100_000)
    found = backlog.slice()
    assert found is not None
    assert found.end is None
    assert found.weight == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    "arrivals",
    [
        [float(START)] * 50_000,
        [float(START + n // 500 * 1000) for n in range(50_000)],
    ],
)
def test_few_large_bursts_are_left_to_counting(arrivals: list[float]) -> None:
    assert Backlog(arrivals, 10_000).slice() is None
