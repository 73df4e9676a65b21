"""Light neighbours share a task; heavy shards and those of unknown size have one of their own."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.reading.read_task import (
    MAX_CARRIED,
    MAX_FETCHED_SHARDS,
    MAX_RECORDS,
    MIN_FETCHING_TASKS,
    ToRead,
    share_out,
)
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import SHARD_END, TRIM_HORIZON, ShardRange


def to_read(shard: int, expected: int | None, carried_bytes: int | None = None) -> ToRead:
    shard_range = ShardRange(f"shardId-{shard:012d}", TRIM_HORIZON, SHARD_END)
    carried = None
    if carried_bytes is not None:
        carried = [Record(data=bytes(carried_bytes), sequence_number="1")]
    return ToRead(shard_range, expected, carried)


RANGES = st.lists(
    st.tuples(st.none() | st.integers(0, 2 * MAX_RECORDS), st.none())
    | st.tuples(st.integers(1, MAX_RECORDS // 8), st.integers(0, MAX_CARRIED // 8)),
    max_size=40,
).map(lambda each: [to_read(shard, *known) for shard, known in enumerate(each)])


def carried_bytes(task: list[ToRead]) -> int:
    return sum(len(record.data) for one in task for record in one.carried or ())


@given(RANGES)
def test_tasks_keep_the_order_and_are_light_and_as_few_as_neighbours_allow(
    ranges: list[ToRead],
) -> None:
    tasks = list(share_out(ranges))
    assert [one for task in tasks for one in task] == ranges
    most = max(1, min(MAX_FETCHED_SHARDS, len(ranges) // MIN_FETCHING_TASKS))
    for task in tasks:
        known = [one.expected for one in task]
        assert len(task) == 1 or None not in known
        assert len(task) == 1 or sum(filter(None, known)) <= MAX_RECORDS
        assert len(task) <= most or task[0].carried is not None
        assert len({one.carried is None for one in task}) == 1, "either calls or none"
        assert carried_bytes(task) <= MAX_CARRIED
    for task, following in itertools.pairwise(tasks):
        both = [*task, following[0]]
        known = [one.expected for one in both]
        if None not in known and len({one.carried is None for one in both}) == 1:
            is_full = len(task) == most if task[0].carried is None else False
            is_full = is_full or sum(filter(None, known)) > MAX_RECORDS
            assert is_full or carried_bytes(both) > MAX_CARRIED


def test_a_batch_at_the_tip_of_a_quiet_stream_is_a_task_for_eight_shards() -> None:
    tasks = list(share_out([to_read(shard, 3) for shard in range(64)]))
    assert [len(task) for task in tasks] == [8] * 8


def test_a_stream_of_few_shards_has_a_task_for_each() -> None:
    assert len(list(share_out([to_read(shard, 3) for shard in range(7)]))) == 7


def test_shards_whose_records_are_in_hand_are_one_task_however_many_they_are() -> None:
    assert len(list(share_out([to_read(shard, 3, 300) for shard in range(64)]))) == 1


def test_a_shard_that_is_fetched_parts_the_tasks_as_it_parts_the_rows() -> None:
    carried = [to_read(shard, 3, None if shard == 2 else 300) for shard in range(5)]
    assert [len(task) for task in share_out(carried)] == [2, 1, 2]
