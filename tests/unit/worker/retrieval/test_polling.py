"""What retrieval by GetRecords keeps for each shard: its budget of calls."""

from __future__ import annotations

from typing import Any, cast

from sparkinesis.stream.page import Fetched, Page
from sparkinesis.worker.options import DEFAULT_OPTIONS, WorkerOptions
from sparkinesis.worker.retrieval.polling import PolledShard, Polling
from tests.planners import Time


def polling(time: Time, options: WorkerOptions = DEFAULT_OPTIONS) -> Polling:
    timing = time.timing
    return Polling(cast(Any, None), options, timing)


def test_a_call_of_a_slow_pace_is_remembered_for_as_long() -> None:
    """While other shards come and go: a budget that is forgotten permits a call at once."""
    time = Time()
    mode = polling(time, WorkerOptions(shard_calls_per_second=0.001))
    began = time()
    with mode._budget_of("shardId-slow").records:
        pass
    for number in range(500):
        time.now += 1.9
        with mode._budget_of(f"shardId-{number:012d}").records:
            pass
    with mode._budget_of("shardId-slow").records:
        assert time() - began == 1000.0


def test_shards_that_are_read_no_more_are_forgotten() -> None:
    """A stream that is resharded for years has had any number of them."""
    time = Time()
    mode = polling(time)
    for number in range(5_000):
        with mode._budget_of(f"shardId-{number:012d}").records:
            time.sleep(1.0)
        with mode._budget_of("shardId-of-all-the-time").records:
            pass
    assert len(mode._budgets) < 200
    assert "shardId-of-all-the-time" in mode._budgets


class Cursor:
    """A cursor at the tip of a shard without records, which notes the limits of its calls."""

    at_end = False

    def __init__(self) -> None:
        self.limits: list[int] = []

    def due_in(self) -> float:
        return 0.0

    def fetch(self, limit: int) -> Fetched:
        self.limits.append(limit)
        page = Page([], "x", 0)
        return Fetched(page, 100, 0)


def test_the_first_records_at_the_tip_come_in_one_page() -> None:
    """Their size is not known, but that of all that can have come since the last call is."""
    time, cursor = Time(), Cursor()
    shard = PolledShard(cast(Any, cursor), max_records=500, idle_time=1.0, clock=time)
    shard.fetch(10**9)
    time.now += 1.0
    wanted = shard.wanted
    time.now += 0.5
    shard.fetch(wanted)
    time.now += 1.0
    shard.fetch(shard.wanted // 4)
    time.now += 1.0
    wanted = shard.wanted
    time.now += 1.5
    shard.fetch(wanted)
    assert cursor.limits[:2] == [500, 500]
    assert max(cursor.limits[2:]) <= 2, "there is less memory than what can have come"
