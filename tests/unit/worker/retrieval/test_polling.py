"""What retrieval by GetRecords keeps for each shard: its budget of calls."""

from __future__ import annotations

from typing import Any, cast

from sparkinesis.stream.timing import Timing
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.retrieval.polling import Polling
from tests.unit.stream.reading.test_budget import VirtualTime


def polling(time: VirtualTime) -> Polling:
    timing = Timing(clock=time.clock, sleep=time.sleep)
    return Polling("app", cast(Any, None), WorkerOptions(), timing)


def test_a_shard_that_is_read_anew_has_no_more_calls_for_that() -> None:
    time = VirtualTime()
    mode = polling(time)
    began = time.clock()
    for _ in range(5):
        with mode._budget_of("shardId-000000000000").records:
            pass
    assert time.clock() - began == 4 * 0.25


def test_shards_that_are_read_no_more_are_forgotten() -> None:
    """A stream that is resharded for years has had any number of them."""
    time = VirtualTime()
    mode = polling(time)
    for number in range(5_000):
        with mode._budget_of(f"shardId-{number:012d}").records:
            time.sleep(1.0)
        with mode._budget_of("shardId-of-all-the-time").records:
            pass
    assert len(mode._budgets) < 200
    assert "shardId-of-all-the-time" in mode._budgets
