"""A Kinesis whose shards end without naming those that follow, and that begins where it likes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.monitor.lags import Lag, lag_client, lag_of
from tests.integration.worker.scene import Scene, checkpoint
from tests.integration.worker.test_w1_order import in_order_of_first_sight, parents_of
from tests.streams import merge_neighbours, put, split

RETRIEVALS = ("polling", "efo")

ODD = Fault(omit=frozenset({"ChildShards"}), begins_early=3)


@pytest.fixture(autouse=True)
def odd_server(server: LocalServer) -> Iterator[None]:
    server.kinesis.faults = lambda call: ODD
    yield
    server.kinesis.faults = None


def test_two_generations_follow_at_once(scene: Scene) -> None:
    """Within the minute that a journal waits; an audit takes six. Nothing comes twice."""

    scene.start(on_records=checkpoint)
    keys = [f"key-{n}" for n in range(8)]
    for turn in range(3):
        for key in keys:
            put(scene.kinesis, scene.stream, [b"%d" % turn], key=key)
        if turn == 0:
            scene.split()
        if turn == 1:
            merge_neighbours(scene.kinesis, scene.stream)
    scene.journal.wait(lambda: len(scene.journal.records()) >= 3 * len(keys))
    scene.journal.wait(lambda: len(scene.journal.calls("shard_ended")) == 3)
    assert len(scene.journal.records()) == 3 * len(keys)
    by_key = in_order_of_first_sight(scene.journal, parents_of(scene))
    assert by_key == {key: [b"0", b"1", b"2"] for key in keys}


def test_a_shard_that_is_done_but_for_its_children_has_no_lag_of_zero(scene: Scene) -> None:
    """While ListShards cannot be asked, the worker holds the lease, and nobody says 0.0 s."""

    def plan(call: Call) -> Fault | None:
        return Fault.error("InternalFailure", status=500) if call.operation == "ListShards" else ODD

    made = scene.application()
    worker = scene.run(made)
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    shard = split(scene.server.client("kinesis"), scene.stream)
    scene.server.kinesis.faults = plan
    with scene.journal.changed:
        while any(
            one.millis_behind_latest == 0 for one in worker.status() if one.shard_id == shard
        ):
            scene.journal.changed.wait(0.05)
    (lease,) = (one for one in made.table().leases() if one.shard_id == shard)
    assert not lease.is_finished
    assert lag_of(lag_client(made.address()), lease) == Lag(why="at shard end")
    assert scene.journal.calls("shard_ended") == []
    scene.server.kinesis.faults = lambda call: ODD
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 4)
    assert scene.journal.calls("shard_ended") == [(shard, "shard_ended")]
