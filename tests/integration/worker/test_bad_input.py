"""What cannot work is refused by an error of its own, before anything is written."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import (
    CheckpointError,
    DuplicateWorkerIdError,
    ProcessorError,
    StreamNotFoundError,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import OnError, Retry, Skip
from sparkinesis.worker.processor import RecordProcessor
from tests.integration.worker.scene import FIRST, SECOND, Scene
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put_at

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


def test_of_twins_that_start_without_leases_one_gives_way(scene: Scene, launch: Start) -> None:
    """Neither can know of the other before there is a lease to take: another worker has it."""
    name = "twins-of-one-shard"
    scene.kinesis.create_stream(StreamName=name, ShardCount=1)

    def make(**given: Any) -> Application:
        return scene.application(name=name, stream=name, **given)

    journals = {each: Journal() for each in ("third", "twin 1", "twin 2")}
    third = scene.run(make(worker_id="third", processor=lambda: Journaling(journals["third"])))
    put_at(scene.kinesis, name, b"1")
    journals["third"].wait_for_data(b"1")
    twins = [
        launch(make(worker_id="same", processor=functools.partial(Journaling, journals[each])))
        for each in ("twin 1", "twin 2")
    ]
    assert third.shutdown(PATIENCE)
    put_at(scene.kinesis, name, b"2")

    ended = threading.Condition()
    refusals: dict[int, DuplicateWorkerIdError] = {}

    def watch(n: int) -> None:
        try:
            twins[n].wait(PATIENCE)
        except DuplicateWorkerIdError as error:
            with ended:
                refusals[n] = error
                ended.notify_all()

    for n in range(2):
        threading.Thread(target=watch, args=(n,), daemon=True).start()
    with ended:
        assert ended.wait_for(lambda: refusals, PATIENCE)
    (loser,) = refusals
    assert "'same'" in str(refusals[loser])
    assert "shardId-000000000000" in str(refusals[loser])
    winner = journals[("twin 1", "twin 2")[1 - loser]]
    put_at(scene.kinesis, name, b"3")
    winner.wait_for_data(b"2", b"3")
    assert not journals[("twin 1", "twin 2")[loser]].data()
    assert not twins[1 - loser].wait(0)
    assert list(refusals) == [loser]


# --- stream and table


def test_a_stream_that_does_not_exist_leaves_no_table_behind(scene: Scene, dynamodb: Any) -> None:
    with pytest.raises(StreamNotFoundError, match="no-such-stream"):
        scene.application(name="typing-error", stream="no-such-stream").worker()
    assert "typing-error" not in dynamodb.list_tables()["TableNames"]


# --- record processors


class NoProcessRecords(RecordProcessor):
    def process_record(self, batch: Any, checkpointer: Any) -> None:
        """A typing error."""


class OfAnotherLibrary:
    def process_records(self, records: Any) -> None: ...


async def later(*_: Any) -> None: ...


class Asynchronous(RecordProcessor):
    async def process_records(self, batch: Any, checkpointer: Any) -> None:  # type: ignore[override]
        checkpointer.checkpoint()


@pytest.mark.parametrize(
    ("processor", "why"),
    [
        (NoProcessRecords, "NoProcessRecords is not a record processor: it has no process_records"),
        (OfAnotherLibrary, "no initialize and no lease_lost"),
        (Journaling(Journal()), "an instance of Journaling"),
        (None, "cannot be called"),
        (Asynchronous, r"process_records of .*Asynchronous is `async def`"),
    ],
)
def test_a_class_that_is_no_record_processor(
    scene: Scene, dynamodb: Any, processor: Any, why: str
) -> None:
    with pytest.raises(ProcessorError, match=why):
        scene.application(processor=processor)
    assert scene.stream not in dynamodb.list_tables()["TableNames"]


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


@pytest.mark.parametrize("policy", [Retry(), Skip()], ids=str)
@pytest.mark.parametrize("made", ["class", "call"])
def test_records_of_a_processor_that_defers_its_work_are_not_lost(
    scene: Scene, launch: Start, made: str, policy: OnError
) -> None:
    """It fails its worker, and leaves all of them to one that does it right."""

    class Forgetful(RecordProcessor):
        def process_records(self, batch: Any, checkpointer: Any) -> Any:
            return later(batch, checkpointer)

        def shutdown_requested(self, checkpointer: Any) -> None:
            checkpointer.checkpoint()

    def make_later() -> RecordProcessor:
        return Asynchronous()

    processor = make_later if made == "class" else Forgetful
    scene.put(b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        worker = launch(scene.application(processor=processor, on_error=policy))
        with pytest.raises(ProcessorError, match="process_records"):
            worker.wait(PATIENCE)
    rows = scene.table.leases()
    assert {str(row.checkpoint) for row in rows} == {"TRIM_HORIZON"}
    assert {row.owner for row in rows} == {None}
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


_ELSEWHERE: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda c, r: c.checkpoint(str(int(r.sequence_number) + 1)), "beyond the last record"),
    (lambda c, r: c.checkpoint(12), "not int"),
    (lambda c, r: c.prepare(str(int(r.sequence_number) + 1)), "beyond the last record"),
]
"""Some of those that `tests/unit/worker/test_checkpointer.py` has."""


def test_a_checkpoint_elsewhere_than_in_what_was_delivered(scene: Scene) -> None:
    """Is refused, writes nothing, and disturbs nothing."""

    def process(batch: Any, checkpointer: Any) -> None:
        for ask, why in _ELSEWHERE:
            with pytest.raises(CheckpointError, match=why):
                ask(checkpointer, batch.records[-1])
        if batch.records[-1].data == b"last":
            checkpointer.checkpoint()

    scene.put(b"x")
    scene.start(on_records=process)
    scene.journal.wait_for_data(b"x")
    row = scene.row()
    assert row.checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")
    assert row.pending is None
    last = scene.put(b"last")
    scene.journal.wait_for_data(b"last")
    assert scene.journal.data() == [b"x", b"last"]
    assert not scene.journal.calls("failed")
    assert scene.row().checkpoint == ExtendedSequenceNumber(last)
