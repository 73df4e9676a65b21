"""`sparkinesis queues tail`: records are printed, held to the end of the command, and released."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator

import pytest

from sparkinesis import aggregate
from sparkinesis.local import Fault
from tests.command import Result, call, objects
from tests.failing import Failing
from tests.integration.queue.commands import (
    State,
    place_of,
    process_of,
    read_until,
    received,
    set_most_receives,
    state,
    time_passes,
)
from tests.integration.queue.scene import QueueScene
from tests.journal import PATIENCE
from tests.pace import eventually


@pytest.fixture(autouse=True)
def moves(scene: QueueScene) -> Iterator[threading.Event]:
    with time_passes(scene) as event:
        yield event


def tail(scene: QueueScene, *options: str) -> Result:
    return call("queues", "tail", "orders", *options, *place_of(scene))


def test_as_many_as_are_asked_for_are_printed_and_released(scene: QueueScene) -> None:
    scene.put(b"one", b"two\n", b"three", b"four")
    shown = tail(scene, "--count", "3")
    assert (shown.returncode, shown.stdout) == (0, "one\ntwo\n\nthree\n")
    assert "Receiving 3 records at most from queue 'orders'" in shown.stderr
    assert "one receive more then, and after 6 receives it is a dead letter" in shown.stderr
    assert state(scene) == State(visible=3)
    counts = {data: count for _, data, count in received(scene)}
    assert counts == {b"one": 2, b"two\n": 2, b"three": 2, b"four": 1}


def test_objects_have_the_user_records_of_an_aggregate(scene: QueueScene) -> None:
    (packed,) = aggregate([("a", None, b"1"), ("b", "7", b"\xff")])
    scene.put(packed.data, b"plain")
    first, second, plain = objects(tail(scene, "--json", "--once"))
    assert first["record_id"] == second["record_id"] != plain["record_id"]
    assert [one["sub_sequence_number"] for one in (first, second, plain)] == [0, 1, 0]
    assert [one["partition_key"] for one in (first, second, plain)] == ["a", "b", "k"]
    assert (first["data"], second["data_base64"], plain["data"]) == ("1", "/w==", "plain")
    assert (second["explicit_hash_key"], plain["receive_count"]) == ("7", 1)


def test_records_with_their_last_receive_are_told(scene: QueueScene) -> None:
    set_most_receives(scene, 1)
    scene.put(b"one")
    shown = tail(scene, "--once")
    assert "and after 1 receive it is a dead letter" in shown.stderr
    assert "1 record had the last receive" in shown.stderr
    assert "sparkinesis queues dead-letters orders --restore" in shown.stderr
    assert state(scene) == State(dead=1)


def test_ctrl_c_ends_it_and_releases_all(scene: QueueScene, moves: threading.Event) -> None:
    moves.clear()
    scene.put(*[b"%d" % number for number in range(12)])
    with process_of(scene, "tail", "orders", "--count", "20", "--json") as process:
        # The receive under way is the one for more than there are: without it, nothing takes
        # what is put after the signal.
        eventually(lambda: state(scene) == State(held=12) and len(scene.polls) == 1)
        process.send_signal(signal.SIGINT)
        read_until(process, "Stopping: the receive under way ends within 5 s.")
        scene.put(b"late")
        told, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    found = [json.loads(line)["data"] for line in told.splitlines()]
    assert sorted(found) == sorted([*map(str, range(12)), "late"]), "it was received: it is shown"
    assert state(scene) == State(visible=13)


def test_it_waits_for_more_than_one_receive(scene: QueueScene) -> None:
    scene.put(b"one")
    with process_of(scene, "tail", "orders", "--count", "2") as process:
        scene.wait_for_calls("ReceiveQueueRecords", 3)
        scene.put(b"two")
        told, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, told) == (0, b"one\ntwo\n")
    assert state(scene) == State(visible=2)


def test_all_is_released_where_nobody_reads_any_more(scene: QueueScene) -> None:
    """As before `| head -1`."""
    scene.put(b"x" * 100_000, b"y" * 100_000)
    with process_of(scene, "tail", "orders", "--once") as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        process.stdout = None
    assert state(scene) == State(visible=2)


def test_what_cannot_be_released_is_told(scene: QueueScene) -> None:
    scene.put(b"one")
    denied = Fault.error("AccessDeniedException")
    scene.server.kinesis.faults = Failing("UpdateQueueRecordsVisibility", then=denied)
    shown = tail(scene, "--count", "1")
    assert (shown.returncode, shown.stdout) == (1, "one\n")
    assert "Not allowed to call UpdateQueueRecordsVisibility" in shown.stderr
