"""A shard that ``Stop`` has stopped is taken up again: by its program, or by an operator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import Stop
from tests.command import failure
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene, wait_for_look
from tests.journal import Journal
from tests.pace import eventually


class Refusing:
    """Refuses one record until it is mended; checkpoints the others."""

    def __init__(self) -> None:
        self.is_mended = False

    def __call__(self, batch: Any, checkpointer: Any) -> None:
        if not self.is_mended and any(record.data == b"bad" for record in batch.records):
            raise RuntimeError("cannot process it")
        checkpointer.checkpoint()


def stopped(scene: Scene, refusing: Refusing, worker_id: str = "a", **given: Any) -> Worker:
    """Return a worker that has stopped the first shard, at its second record."""
    worker = scene.start(on_records=refusing, on_error=Stop(), worker_id=worker_id, **given)
    eventually(lambda: FIRST in worker._state.stopped_shards)
    return worker


def looks(worker: Worker, count: int = 3) -> None:
    """Wait until a worker has scanned the table so often."""
    seen: set[float | None] = set()

    def has_looked() -> bool:
        seen.add(worker._coordinator.snapshot.at)
        return len(seen) > count

    wait_for_look(worker, has_looked)


@pytest.fixture
def refusing(scene: Scene) -> Refusing:
    scene.put(b"good")
    first = scene.start(on_records=lambda batch, checkpointer: checkpointer.checkpoint())
    scene.journal.wait_for_data(b"good")
    eventually(lambda: not scene.row().checkpoint.is_sentinel)
    first.shutdown()
    scene.journal.entries.clear()
    scene.put(b"bad")
    return Refusing()


def test_its_program_restarts_a_shard_from_its_checkpoint(scene: Scene, refusing: Refusing) -> None:
    worker = stopped(scene, refusing)
    assert scene.row().stopped_by == ("a",)
    assert scene.row().owner is None
    looks(worker)
    assert scene.calls_of().count("initialize") == 1
    refusing.is_mended = True
    worker.restart(FIRST)
    scene.journal.wait_for_data(b"bad")
    assert scene.journal.data(FIRST) == [b"bad"], "the good one was checkpointed before"
    assert scene.row().stopped_by == ()
    assert worker._whole_status()["stopped_shards"] == {}


def test_a_restart_of_what_is_not_stopped_is_refused(scene: Scene, refusing: Refusing) -> None:
    worker = stopped(scene, refusing)
    with pytest.raises(OptionError, match=f"{SECOND} is not stopped on this worker.*: {FIRST}"):
        worker.restart(SECOND)
    with pytest.raises(OptionError, match="no shard 'x'"):
        worker.restart("x")
    refusing.is_mended = True
    worker.restart()
    with pytest.raises(OptionError, match="No shard is stopped on this worker"):
        worker.restart()
    scene.journal.wait_for_data(b"bad")


def test_an_operator_restarts_a_shard_on_all_workers(scene: Scene, refusing: Refusing) -> None:
    """Each of them stopped it; within a few looks one of them reads it, and nobody else is told."""
    workers = [stopped(scene, refusing, one) for one in "ab"]
    assert scene.row().stopped_by == ("a", "b")
    shown = [json.loads(line) for line in scene.call("leases", "--json").stdout.splitlines()]
    assert [(one["state"], one["stopped_by"]) for one in shown] == [
        ("stopped", ["a", "b"]),
        ("held", []),
    ]
    assert FIRST in failure(scene.call("restart", "--shard", SECOND))
    refusing.is_mended = True
    found = scene.call("restart", "--shard", FIRST, "--json")
    assert [json.loads(line) for line in found.stdout.splitlines()] == [
        {
            "lease": FIRST,
            "stream": None,
            "shard": FIRST,
            "stopped_by": ["a", "b"],
            "checkpoint": str(scene.row().checkpoint),
        }
    ]
    scene.journal.wait_for_data(b"bad")
    eventually(lambda: all(not worker._state.stopped_shards for worker in workers))
    assert "No shard is stopped" in failure(scene.call("restart"))


def test_a_restart_does_not_disturb_who_reads_the_shard(scene: Scene, refusing: Refusing) -> None:
    """Another worker has passed the record; from the restart on, the first may have it again."""
    worker = stopped(scene, refusing)
    other = Journal()
    second = scene.start(worker_id="b", journal=other)
    other.wait_for_data(b"bad")
    held = second._state.consumers[FIRST].held
    assert "Restarted 1 shard" in scene.call("restart").stdout
    eventually(lambda: not worker._state.stopped_shards)
    looks(second)
    assert held.is_held()
    assert scene.row().stopped_by == ()


def test_a_shard_that_fails_again_is_stopped_again(scene: Scene, refusing: Refusing) -> None:
    worker = stopped(scene, refusing)
    scene.call("restart")
    scene.journal.wait(lambda: scene.calls_of().count("failed") == 2)
    eventually(lambda: scene.row().stopped_by == ("a",))
    looks(worker)
    assert scene.calls_of().count("failed") == 2
    scene.put(b"other", UPPER)
    scene.journal.wait_for_data(b"other")


def test_a_process_of_the_same_id_begins_anew(scene: Scene, refusing: Refusing) -> None:
    """What it takes, it has not stopped: the row says so."""
    stopped(scene, refusing).shutdown()
    refusing.is_mended = True
    scene.start(on_records=refusing, worker_id="a")
    scene.journal.wait_for_data(b"bad")
    assert scene.row().stopped_by == ()
