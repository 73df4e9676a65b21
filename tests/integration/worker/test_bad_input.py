"""What cannot work is refused by an error of its own, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import DuplicateWorkerIdError, ProcessorError, StreamNotFoundError
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.processors.processor import RecordProcessor
from tests.integration.worker.scene import FIRST, SECOND, Scene
from tests.journal import PATIENCE, Journal, Journaling

Start = Callable[[Application], Worker]


@pytest.fixture
def launch() -> Iterator[Callable[[Application], Worker]]:
    """Starts workers that are expected to fail; what is left of them ends with the test."""
    workers: list[Worker] = []

    def run(application: Application) -> Worker:
        workers.append(application.worker())
        return workers[-1].start()

    yield run
    for worker in workers:
        worker.shutdown(10)


def process_all(scene: Scene, *datas: bytes) -> list[bytes]:
    """A proper worker gets everything, and what is put now."""
    journal = Journal()
    scene.start(journal=journal)
    scene.put(b"and on")
    journal.wait_for_data(*datas, b"and on")
    return journal.data()


# --- worker ids


def test_a_second_worker_of_the_same_id_is_refused_before_it_takes_anything(
    scene: Scene, launch: Start
) -> None:
    first = scene.start(worker_id="same")
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    twin = Journal()
    with pytest.raises(DuplicateWorkerIdError, match=r"'same'.*No lease was taken"):
        launch(scene.application(worker_id="same", processor=lambda: Journaling(twin)))
    assert not first.wait(0)
    scene.put(b"x")
    scene.journal.wait_for_data(b"x")
    assert not twin.entries
    assert not scene.journal.calls("lease_lost")
    assert scene.owners() == {FIRST: "same", SECOND: "same"}


# --- stream and table


def test_a_stream_that_does_not_exist_leaves_no_table_behind(scene: Scene, dynamodb: Any) -> None:
    with pytest.raises(StreamNotFoundError, match="no-such-stream"):
        scene.application(name="typing-error", stream="no-such-stream").worker()
    assert "typing-error" not in dynamodb.list_tables()["TableNames"]


# --- record processors


class NoProcessRecords(RecordProcessor):
    def process_recods(self, batch: Any, checkpointer: Any) -> None:
        """A typing error."""


async def later(*_: Any) -> None: ...


@pytest.mark.parametrize(
    "made", [NoProcessRecords(), "a string", None], ids=["object", "string", "none"]
)
def test_a_function_that_makes_something_else_ends_the_worker(
    scene: Scene, launch: Start, made: Any
) -> None:
    """Its leases are released, and no record is lost to a worker that does it right."""
    scene.put(b"x")
    worker = launch(scene.application(processor=lambda: made))
    with pytest.raises(ProcessorError, match=f"{type(made).__name__} is not a record processor"):
        worker.wait(PATIENCE)
    (failure,) = worker.failures()
    assert "is not a record processor" in failure.error
    assert failure.shard_ids == (), "it concerns all of them"
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert process_all(scene, b"x") == [b"x", b"and on"]


@pytest.mark.parametrize("name", ["initialize", "shard_ended", "shutdown_requested", "lease_lost"])
def test_a_call_of_the_life_cycle_that_returns_a_coroutine_fails_the_worker(
    scene: Scene, launch: Start, name: str
) -> None:
    made = type("Forgetful", (Journaling,), {name: lambda *_: later()})
    worker = launch(scene.application(processor=lambda: made(scene.journal)))
    if name != "initialize":
        scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
        scene.split() if name == "shard_ended" else worker.request_shutdown()
    with pytest.raises(ProcessorError, match="returned a coroutine"):
        worker.wait(PATIENCE)
    assert not scene.row().is_finished, "also if its end was what failed"
