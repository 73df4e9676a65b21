"""When an idle shard is polled again: at slots that many shards share, and as often as asked."""

from __future__ import annotations

import random

import pytest

from sparkinesis.worker.retrieval.polling import due_after


@pytest.mark.parametrize("idle_time", [0.3, 1.0, 1.5, 5.0])
@pytest.mark.parametrize("shards", [1, 10, 60, 89, 100, 130, 700, 1000, 3000])
def test_a_shard_is_polled_as_often_as_asked(shards: int, idle_time: float) -> None:
    rng = random.Random(shards)
    begun = now = rng.uniform(0.0, 100.0)
    gaps = []
    for _ in range(50):
        due = due_after(now, idle_time, shards)
        gaps.append(due - now)
        now = due + rng.uniform(0.0, 0.02)
    assert max(gaps) <= 1.25 * idle_time
    assert min(gaps) >= 0.25 * idle_time
    assert (now - begun) / 50 == pytest.approx(idle_time, rel=0.05)


@pytest.mark.parametrize(("shards", "instants"), [(10, 1), (100, 2), (130, 3), (1000, 20)])
def test_shards_that_are_due_at_about_the_same_time_are_polled_together(
    shards: int, instants: int
) -> None:
    rng = random.Random(1)
    due = {round(due_after(50 + rng.random(), 1.0, shards) % 1.0, 6) % 1.0 for _ in range(1000)}
    assert len(due) == instants
