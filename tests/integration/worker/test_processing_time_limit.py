"""``processing_time_limit``: a call that takes too long is told of, and if asked to, given up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sparkinesis.errors import LeaseLostError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.scene import FIRST, Scene, told, wait_for_look
from tests.journal import PATIENCE, Journal

LIMIT = 0.3


class Stuck:
    """Checkpoints the first record alone, sticks at the one after it until told to go on, and then
    tries to checkpoint."""

    def __init__(self) -> None:
        self.is_there = threading.Event()
        self.go_on = threading.Event()
        self.refusals: list[LeaseLostError] = []

    def __call__(self, batch: Any, checkpointer: Any) -> None:
        if batch.records[0].data == b"done":
            checkpointer.checkpoint(batch.records[0])
        if batch.records[-1].data == b"stuck" and not self.go_on.is_set():
            self.is_there.set()
            assert self.go_on.wait(PATIENCE)
            try:
                checkpointer.checkpoint()
            except LeaseLostError as error:
                self.refusals.append(error)
                raise


def processing_for(worker: Worker) -> float:
    return max((status.processing_for or 0.0 for status in worker.status()), default=0.0)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return told(caplog, "processing_time_limit")


def test_a_slow_call_is_reported_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    worker = scene.start({"processing_time_limit": LIMIT}, on_records=stuck)
    scene.put(b"quick")
    scene.journal.wait_for_data(b"quick")
    assert not reports(caplog)
    scene.put(b"stuck")
    assert stuck.is_there.wait(PATIENCE)
    # Several looks later, there is one report still.
    wait_for_look(worker, lambda: processing_for(worker) > 6 * LIMIT)
    (report,) = reports(caplog)
    assert f"shard {FIRST}" in report
    assert "0.3 s" in report
    assert "lease is released" not in report
    stuck.go_on.set()
    scene.journal.wait_for_data(b"stuck")
    assert not stuck.refusals, "it keeps its lease"


def test_another_worker_goes_on_from_the_last_checkpoint(scene: Scene) -> None:
    stuck = Stuck()
    done = scene.put(b"done")
    scene.put(b"stuck")
    scene.start(
        {"processing_time_limit": LIMIT, "give_up_after_limit": True},
        worker_id="a",
        on_records=stuck,
    )
    assert stuck.is_there.wait(PATIENCE)
    other = Journal()
    b = scene.start(worker_id="b", journal=other)
    other.wait_for_data(b"stuck")
    assert other.data() == [b"stuck"]
    row = scene.row()
    assert (row.owner, row.checkpoint) == ("b", ExtendedSequenceNumber(done))
    stuck.go_on.set()
    scene.journal.wait(lambda: (FIRST, "lease_lost") in scene.journal.calls())
    (refusal,) = stuck.refusals
    assert FIRST in str(refusal)
    row = scene.row()
    assert (row.owner, row.checkpoint) == ("b", ExtendedSequenceNumber(done))
    assert "lease is released" in reports(scene.caplog)[0]
    # The worker that gave it up goes on with others, and may have this one again.
    assert b.shutdown(PATIENCE)
    scene.journal.wait_for_data(b"stuck")
