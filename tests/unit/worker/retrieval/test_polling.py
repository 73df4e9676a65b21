"""What retrieval by GetRecords keeps for each shard: its budget of calls."""

from __future__ import annotations

from typing import Any, cast

from sparkinesis.worker.options import DEFAULT_OPTIONS, WorkerOptions
from sparkinesis.worker.retrieval.polling import Polling
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
