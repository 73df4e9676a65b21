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


def records_of(tasks: list[list[tuple[str, int | None]]]) -> list[list[int | None]]:
    return [[records for _, records in task] for task in tasks]


@given(RANGES)
def test_the_order_of_the_ranges_is_that_of_the_tasks(ranges: list[tuple[int, int | None]]) -> None:
    assert [one for task in share_out(ranges) for one in task] == ranges


@given(RANGES)
def test_a_task_of_several_shards_is_light(ranges: list[tuple[int, int | None]]) -> None:
    for task in records_of(list(share_out([(str(n), records) for n, records in ranges]))):
        if len(task) > 1:
            assert len(task) <= min(MAX_SHARDS, len(ranges) // MIN_TASKS)
            assert None not in task
            assert sum(filter(None, task)) <= MAX_RECORDS


@given(RANGES)
def test_two_tasks_of_light_neighbours_would_not_fit_into_one(
    ranges: list[tuple[int, int | None]],
) -> None:
    tasks = records_of(list(share_out([(str(n), records) for n, records in ranges])))
    for task, following in itertools.pairwise(tasks):
        if None not in task and following[0] is not None:
            total = sum(filter(None, task)) + following[0]
            most = max(1, min(MAX_SHARDS, len(ranges) // MIN_TASKS))
            assert total > MAX_RECORDS or len(task) == most


def test_a_batch_at_the_tip_of_a_quiet_stream_is_a_task_for_eight_shards() -> None:
    tasks = list(share_out([(str(shard), 3) for shard in range(64)]))
    assert [len(task) for task in tasks] == [8] * 8


def test_a_stream_of_few_shards_has_a_task_for_each() -> None:
    assert len(list(share_out([(str(shard), 3) for shard in range(7)]))) == 7
