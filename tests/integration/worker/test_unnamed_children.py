"""A Kinesis whose shards end without naming those that follow, and that begins where it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.monitor.lags import Lag, lag_client, lag_of
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.test_w1_order import in_order_of_first_sight, parents_of
from tests.journal import Journal, Journaling
from tests.streams import merge_neighbours, put, split

RETRIEVALS = ("polling", "efo")

ODD = Fault(omit=frozenset({"ChildShards"}), begins_early=3)


@pytest.fixture(autouse=True)
def odd_server(server: LocalServer) -> Iterator[None]:
    server.kinesis.faults = lambda call: ODD
    yield
    server.kinesis.faults = None


def test_two_generations_follow_at_once(
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    kinesis: Any,
    stream: str,
    journal: Journal,
) -> None:
    """Within the minute that a journal waits; an audit takes six. Nothing comes twice."""

    def checkpoint(batch: Any, checkpointer: Any) -> None:
        checkpointer.checkpoint()

    start(application(processor=lambda: Journaling(journal, on_records=checkpoint)))
    keys = [f"key-{n}" for n in range(8)]
    for turn in range(3):
        for key in keys:
            put(kinesis, stream, [b"%d" % turn], key=key)
        if turn == 0:
            split(kinesis, stream)
        if turn == 1:
            merge_neighbours(kinesis, stream)
    journal.wait(lambda: len(journal.records()) >= 3 * len(keys))
    journal.wait(lambda: len(journal.calls("shard_ended")) == 3)
    assert len(journal.records()) == 3 * len(keys)
    by_key = in_order_of_first_sight(journal, parents_of(kinesis, stream))
    assert by_key == {key: [b"0", b"1", b"2"] for key in keys}


def test_a_shard_that_is_done_but_for_its_children_has_no_lag_of_zero(
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    server: LocalServer,
    stream: str,
    journal: Journal,
) -> None:
    """While ListShards cannot be asked, the worker holds the lease, and nobody says 0.0 s."""

    def plan(call: Call) -> Fault | None:
        return Fault.error("InternalFailure", status=500) if call.operation == "ListShards" else ODD

    made = application()
    worker = start(made)
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    shard = split(server.client("kinesis"), stream)
    server.kinesis.faults = plan
    with journal.changed:
        while any(
            one.millis_behind_latest == 0 for one in worker.status() if one.shard_id == shard
        ):
            journal.changed.wait(0.05)
    (lease,) = (one for one in made.table().leases() if one.shard_id == shard)
    assert not lease.is_finished
    assert lag_of(lag_client(made.address()), lease) == Lag(why="at shard end")
    assert journal.calls("shard_ended") == []
    server.kinesis.faults = lambda call: ODD
    journal.wait(lambda: len(journal.calls("initialize")) == 4)
    assert journal.calls("shard_ended") == [(shard, "shard_ended")]
