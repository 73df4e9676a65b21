"""Light neighbours share a task; heavy shards and those of unknown size have one of their own."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.planning.read_tasks import (
    MAX_RECORDS,
    MAX_SHARDS,
    MIN_TASKS,
    share_out,
)

RANGES = st.lists(st.none() | st.integers(0, 2 * MAX_RECORDS), max_size=40).map(
    lambda records: list(enumerate(records))
)


@given(RANGES)
def test_tasks_keep_the_order_and_are_light_and_as_few_as_neighbours_allow(
    ranges: list[tuple[int, int | None]],
) -> None:
    found = list(share_out(ranges))
    assert [one for task in found for one in task] == ranges
    tasks = [[records for _, records in task] for task in found]
    most = max(1, min(MAX_SHARDS, len(ranges) // MIN_TASKS))
    for task in tasks:
        assert len(task) <= most
        assert len(task) == 1 or None not in task
        assert len(task) == 1 or sum(filter(None, task)) <= MAX_RECORDS
    for task, following in itertools.pairwise(tasks):
        if None not in task and following[0] is not None:
            total = sum(filter(None, task)) + following[0]
            assert total > MAX_RECORDS or len(task) == most


def test_a_batch_at_the_tip_of_a_quiet_stream_is_a_task_for_eight_shards() -> None:
    tasks = list(share_out([(str(shard), 3) for shard in range(64)]))
    assert [len(task) for task in tasks] == [8] * 8


def test_a_stream_of_few_shards_has_a_task_for_each() -> None:
    assert len(list(share_out([(str(shard), 3) for shard in range(7)]))) == 7
