"""Records that the planner has in hand go to the tasks, which then make no calls for them."""

from __future__ import annotations

import pytest

from sparkinesis.source.planning.probing.records_in_hand import KEPT_BYTES
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import Query
from tests.properties.conftest import World
from tests.streams import put, put_at

LAST = 2**128 - 1


def planned(running: Query) -> tuple[list[int], list[int]]:
    """The ranges of each task of the next batch, and how many of them are carried; it is read."""
    start, end = running.plan()
    tasks = running.reader.partitions(start, end)
    batch, replayed = running.read(start, end), running.read(start, end, is_replay=True)
    assert batch.rows == replayed.rows != [], "P1: also in their order"
    running.checkpoint = end
    carried = [sum(one.carried is not None for one in task.to_read) for task in tasks]
    return [len(task.to_read) for task in tasks], carried


def test_a_small_batch_is_one_task_that_makes_no_call(world: World) -> None:
    running = world.query()
    for number in range(20):
        put_at(world.kinesis, "s", b"%d" % number, LAST * (number % 2))
    start, end = running.plan()
    calls = world.server.kinesis.calls
    before = len(list(calls))
    batch = running.read(start, end)
    assert len(list(calls)) == before
    assert batch.rows == running.read(start, end, is_replay=True).rows
    assert len(batch.rows) == 20
    assert planned(running) == ([2], [2])


def test_a_shard_with_much_data_is_fetched_and_its_neighbour_is_not(world: World) -> None:
    running = world.query()
    put_at(world.kinesis, "s", bytes(KEPT_BYTES + 1), 0)
    put_at(world.kinesis, "s", b"small", LAST)
    assert planned(running) == ([1, 1], [0, 1])


def test_what_follows_a_large_batch_is_in_hand_again(world: World) -> None:
    running = world.query()
    put_at(world.kinesis, "s", bytes(KEPT_BYTES + 1), 0)
    assert planned(running) == ([1], [0])
    put_at(world.kinesis, "s", b"small", 0)
    world.clock.advance(1000)
    assert planned(running) == ([1], [1])


@pytest.mark.parametrize("deaggregate", ["true", "false"])
def test_aggregates_in_hand_are_unpacked_by_the_task(world: World, deaggregate: str) -> None:
    (blob,) = aggregate([("k", None, b"%d" % number) for number in range(50)])
    put(world.kinesis, "s", [b"plain", blob.data, b"other"], "k")
    running = world.query(deaggregate=deaggregate)
    assert planned(running) == ([1], [1])


def test_a_part_of_the_records_in_hand_goes_with_each_batch_of_a_limit(world: World) -> None:
    running = world.query(maxRecordsPerTrigger="3")
    for number in range(7):
        put_at(world.kinesis, "s", b"%d" % number, 0)
        world.clock.advance(10)
    world.clock.advance(1000)
    batches = list(running.drain())
    assert [len(batch.rows) for batch in batches] == [3, 3, 1]
    for batch in batches:
        assert running.read(batch.start, batch.end, is_replay=True).rows == batch.rows


def test_subscribed_tasks_read_by_their_subscriptions(world: World) -> None:
    running = world.query(by="efo")
    put(world.kinesis, "s", [b"a"], "k")
    assert planned(running) == ([1], [0])


def test_a_planner_hands_over_no_records_of_another_batch(world: World) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a"], "k")
    first = running.batch()
    put(world.kinesis, "s", [b"b"], "k")
    world.clock.advance(1000)
    second = running.batch()
    both = running.read(first.start, second.end)
    assert both.datas == [b"a", b"b"]
    assert running.read(first.start, first.end).datas == [b"a"]
