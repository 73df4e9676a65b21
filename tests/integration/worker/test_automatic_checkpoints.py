"""Automatic checkpoints of processors that never ask for one: what a next reader gets again."""

from __future__ import annotations

from typing import Any

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import Call, Fault
from tests import pace
from tests.failing import Failing
from tests.integration.worker.scene import Scene, crash
from tests.journal import PATIENCE, Journal, Journaling
from tests.pace import eventually

RETRIEVALS = ("polling", "efo")


NEVER = 3600.0


class Silent(Journaling):
    """Never checkpoints, not even the end of its shard."""

    def shard_ended(self, checkpointer: Any) -> None:
        self.journal.write(self.shard.id, "shard_ended")


def put_numbers(scene: Scene, first: int, last: int) -> list[str]:
    """Put these numbers into the first shard; return their sequence numbers."""
    return [scene.put(b"%d" % n) for n in range(first, last + 1)]


def wait_for_row(scene: Scene, sequence_number: str) -> None:
    eventually(lambda: scene.row().checkpoint.sequence_number == sequence_number)


def test_a_crash_repeats_no_more_than_the_interval(scene: Scene) -> None:
    put_numbers(scene, 1, 8)
    options = {"checkpoint_records": 3}
    worker = scene.start(worker_id="w", processor=lambda: Silent(scene.journal), options=options)
    scene.journal.wait_for_data(b"8")
    crash(worker)
    resumed = Journal()
    scene.start(worker_id="w", processor=lambda: Silent(resumed), options=options)
    resumed.wait_for_data(b"8")
    assert resumed.data() == [b"7", b"8"]


def test_a_quiet_shard_is_checkpointed_in_time(scene: Scene) -> None:
    numbers = put_numbers(scene, 1, 3)
    scene.start({"checkpoint_seconds": 0.2}, processor=lambda: Silent(scene.journal))
    wait_for_row(scene, numbers[-1])
    numbers = put_numbers(scene, 4, 5)
    wait_for_row(scene, numbers[-1])
    assert scene.journal.data() == [b"1", b"2", b"3", b"4", b"5"]


def test_a_shutdown_request_that_fails_leaves_the_checkpoint_where_it_was(scene: Scene) -> None:
    """What the processor wanted to finish there may not be done."""

    def fail(checkpointer: Any) -> None:
        raise ValueError("cannot finish")

    put_numbers(scene, 1, 3)
    worker = scene.start(
        {"checkpoint_seconds": NEVER}, processor=lambda: Silent(scene.journal, on_shutdown=fail)
    )
    scene.journal.wait_for_data(b"3")
    assert worker.shutdown(PATIENCE)
    assert scene.row().checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")


def test_an_end_that_cannot_be_checkpointed_is_not_told_again(scene: Scene) -> None:
    refuse = Failing("UpdateItem", Fault.error("AccessDeniedException"), stream=scene.stream)

    class AtTheEnd(Silent):
        def shard_ended(self, checkpointer: Any) -> None:
            super().shard_ended(checkpointer)
            scene.server.kinesis.faults = refuse

    parent = scene.split()
    scene.put(b"child")
    scene.start(
        {"checkpoint_seconds": NEVER, "task_backoff": 0.05},
        processor=lambda: AtTheEnd(scene.journal),
    )
    scene.journal.wait_for_data(b"child")
    assert refuse.met == 1
    assert scene.journal.calls("shard_ended").count((parent, "shard_ended")) == 1


def test_processing_waits_for_a_checkpoint_that_is_due(scene: Scene) -> None:
    """Otherwise more would be repeated than the option says."""
    refusals: list[str] = []

    def refuse(call: Call) -> Fault | None:
        if call.operation != "UpdateItem" or call.stream != scene.stream or len(refusals) >= 3:
            return None
        refusals.append(str(len(scene.journal.data())))
        return Fault.error("AccessDeniedException", status=400)

    def begin(batch: Any, checkpointer: Any) -> None:
        scene.server.kinesis.faults = refuse

    numbers = put_numbers(scene, 1, 5)
    worker = scene.start(
        {
            "checkpoint_records": 2,
            "task_backoff": 0.05,
            "failover_time": pace.seconds(20.0),
        },
        processor=lambda: Silent(scene.journal, on_records=begin),
    )
    scene.journal.wait_for_data(b"5")
    scene.server.kinesis.faults = None
    assert refusals == ["2", "2", "2"]
    assert any("An automatic checkpoint failed on" in one.what for one in worker.failures())
    assert worker.shutdown(PATIENCE)
    assert scene.row().checkpoint.sequence_number == numbers[-1]
