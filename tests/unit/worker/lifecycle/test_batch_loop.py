"""The loops over batches and records: what counts as processed, and what ends a loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, cast

import pytest

from sparkinesis.errors import CheckpointError, LeaseLostError, ProcessorError
from sparkinesis.lease.held import HeldLease
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.batch_loop import BatchLoop, LoopBatch, RecordLoop, _Offering
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.processors.processor import ProcessorFactory, ProcessorShard
from tests.pace import eventually
from tests.unit.worker.delivering import SHARD, Held, at, batch_of


class Shard:
    """Batches that a shard's consumer delivers, and what it hears of each."""

    def __init__(self, *batches: RecordBatch) -> None:
        self.batches = batches
        self.held = Held()
        self.checkpointer = Checkpointer(cast(HeldLease, self.held), lambda: 0)
        self.processed: list[list[str]] = []
        self.dropped: list[list[str]] = []

    def deliver(self, processor: Any, worker: Delivering) -> None:
        processor.initialize(
            ProcessorShard(
                SHARD, "app", "s", "w", at("TRIM_HORIZON"), request_shutdown=worker.request_shutdown
            )
        )
        for batch in self.batches:
            if batch:
                self.checkpointer.permit(batch.last, batch)
            try:
                processor.process_records(batch, self.checkpointer)
            except CancelledError:
                self.dropped.append(numbers(batch))
                return
            self.processed.append(numbers(batch))


class Delivering:
    """As much of a worker as a loop needs: a thread for each shard, as a consumer has one."""

    def __init__(self, *shards: Shard, error: Exception | None = None, stays: bool = False) -> None:
        self.shards = shards
        self.error = error
        self.is_ending = threading.Event()
        self.shutdowns = 0
        self.asked_by: list[tuple[str, bool]] = []
        """The threads that asked for the end: name, and whether the program may end before it."""
        self._threads: list[threading.Thread] = []
        self._stays = stays
        """True if it goes on after the last batch, until its shutdown."""

    def __call__(self, factory: ProcessorFactory) -> Worker:
        for shard in self.shards:
            given = factory(), self
            self._threads.append(threading.Thread(target=shard.deliver, args=given, daemon=True))
        if self._stays:
            self._threads.append(threading.Thread(target=self.is_ending.wait, daemon=True))
        return cast(Worker, self)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def request_shutdown(self) -> None:
        thread = threading.current_thread()
        self.asked_by.append((thread.name, thread.daemon))
        self.is_ending.set()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        if self.error is not None:
            raise self.error

    def shutdown(self) -> None:
        self.shutdowns += 1
        for thread in self._threads:
            thread.join(60)


def numbers(batch: RecordBatch) -> list[str]:
    return [record.sequence_number for record in batch.records]


def loop_over(*shards: Shard, timeout: float | None = None, **of: Any) -> BatchLoop:
    return BatchLoop("app", Delivering(*shards, **of), timeout)


def records_of(*shards: Shard, timeout: float | None = None, **of: Any) -> RecordLoop:
    return RecordLoop("app", Delivering(*shards, **of), timeout)


def test_a_batch_that_waits_as_its_loop_is_left_comes_again_and_the_worker_shuts_down() -> None:
    first, second = Shard(batch_of(1)), Shard(batch_of(2))
    worker = Delivering(first, second, stays=True)
    with BatchLoop("app", worker, None) as batches:
        next(batches)
        eventually(lambda: batches._handover._offers)
        assert not worker.is_ending.is_set()
    assert first.processed == second.processed == []
    assert sorted(first.dropped + second.dropped) == [["1"], ["2"]]
    assert worker.is_ending.is_set()
    assert worker.shutdowns == 1


def test_the_batches_of_shards_come_in_the_order_of_their_offers() -> None:
    shards = [Shard(batch_of(n)) for n in range(4)]
    with loop_over(*shards, stays=True) as batches:
        eventually(lambda: len(batches._handover._offers) == 4)
        offered = [numbers(offer.batch) for offer in batches._handover._offers]
        got = [numbers(next(batches)) for _ in shards]
        assert got == offered
        eventually(lambda: sum(len(shard.processed) for shard in shards) == 3)


def test_the_batch_of_a_lease_that_was_lost_meanwhile_does_not_come() -> None:
    """Another worker has its records; the loop goes on with other shards."""
    lost, other = Shard(batch_of(1)), Shard(batch_of(2))
    worker = Delivering(lost, stays=True)
    with BatchLoop("app", worker, None) as batches:
        eventually(lambda: batches._handover._offers)
        lost.held.held = False
        thread = threading.Thread(
            target=other.deliver, args=(batches_processor(batches), worker), daemon=True
        )
        thread.start()
        assert numbers(next(batches)) == ["2"]
        eventually(lambda: lost.dropped)
        assert not worker.is_ending.is_set(), "the worker goes on"
    thread.join(60)
    assert (lost.processed, other.dropped) == ([], [["2"]])


def test_a_batch_that_is_offered_after_the_loop_is_refused_and_the_worker_asked_to_end() -> None:
    shard = Shard(batch_of(1))
    worker = Delivering(stays=True)
    with BatchLoop("app", worker, None) as batches:
        processor = batches_processor(batches)
    worker.is_ending.clear()
    shard.deliver(processor, worker)
    assert shard.dropped == [["1"]]
    assert worker.is_ending.is_set(), "or the batch would be delivered again at once"


def test_the_error_that_ended_the_worker_ends_the_loop() -> None:
    shard = Shard(batch_of(1))
    got: list[list[str]] = []

    def loop() -> None:
        with loop_over(shard, error=LeaseLostError("the table is gone")) as batches:
            got.extend(map(numbers, batches))

    with pytest.raises(LeaseLostError, match="the table is gone"):
        loop()
    assert got == [["1"]]


def test_a_loop_without_a_batch_ends_with_its_worker() -> None:
    with loop_over() as batches:
        assert list(batches) == []


def test_a_program_does_not_wait_for_a_worker_that_nobody_ends() -> None:
    with loop_over(stays=True):
        watching = [one.daemon for one in threading.enumerate() if one.name == "app-loop"]
    assert watching == [True]


def test_a_loop_that_was_interrupted_while_it_waited_may_go_on() -> None:
    with loop_over(Shard(batch_of(1))) as batches:
        asked = batches._ask()
        assert asked.result(60) is not None
        assert batches._ask() is asked, "the batch would be lost"
        assert numbers(next(batches)) == ["1"]


def test_a_timeout_ends_a_loop_that_may_go_on_without_a_loss() -> None:
    worker = Delivering(stays=True)
    shard = Shard(batch_of(1))
    with BatchLoop("app", worker, 0.0) as batches:
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)
        processor = batches_processor(batches)
        thread = threading.Thread(target=shard.deliver, args=(processor, worker), daemon=True)
        thread.start()
        eventually(lambda: batches._handover._offers)
        assert numbers(next(batches)) == ["1"]
        with pytest.raises(StopIteration):
            next(batches)
        thread.join(60)
        assert shard.processed == [["1"]], "to ask in vain is to ask"


def test_a_batch_that_waits_as_the_worker_is_to_end_is_given_to_nobody() -> None:
    shards = Shard(batch_of(1)), Shard(batch_of(2))
    with loop_over(*shards, stays=True) as batches:
        got = [numbers(next(batches))]
        eventually(lambda: batches._handover._offers)
        batches._request_shutdown()
        got += map(numbers, batches)
    assert [one for shard in shards for one in shard.processed] == got
    assert sum(len(shard.dropped) for shard in shards) == len(got) == 1


def test_sigterm_ends_the_loop_after_the_batch_that_it_is_at() -> None:
    shard = Shard(batch_of(1), batch_of(2))
    before = signal.getsignal(signal.SIGTERM)
    worker = Delivering(shard, stays=True)
    with BatchLoop("app", worker, None) as batches:
        got = [numbers(next(batches))]
        signal.raise_signal(signal.SIGTERM)
        eventually(lambda: batches._handover._is_over)
        assert worker.asked_by == [("shutdown", True)], "a handler must not wait"
        got += map(numbers, batches)
    assert got == [["1"]]
    assert (shard.processed, shard.dropped) == ([["1"]], [["2"]])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_loop_has_its_worker_within_its_block() -> None:
    batches = loop_over(stays=True)
    with pytest.raises(ProcessorError, match="it needs a block"):
        _ = batches.worker
    with batches, pytest.raises(ProcessorError, match="The loop over app has begun already"):
        batches.__enter__()


def test_a_worker_that_cannot_be_made_leaves_nothing_behind() -> None:
    def fail(_: ProcessorFactory) -> Worker:
        raise ProcessorError("no")

    batches = BatchLoop("app", fail, None)
    with pytest.raises(ProcessorError, match="no"):
        batches.__enter__()
    batches.__exit__(None, None, None)


def batches_processor(batches: BatchLoop) -> Any:
    """Another processor of the loop, as for a lease that its worker takes later."""
    return _Offering(batches._handover)


# --- checkpoints


def of_loop(batch: RecordBatch) -> tuple[LoopBatch, Held]:
    shard = Shard()
    if batch:
        shard.checkpointer.permit(batch.last, batch)
    place = ProcessorShard(SHARD, "app", "s", "w", at("TRIM_HORIZON"))
    return LoopBatch.of(batch, place, shard.checkpointer), shard.held


def test_a_batch_of_a_loop_is_the_one_that_was_delivered_with_its_shard() -> None:
    whole = batch_of(1, 2, 3)
    whole.millis_behind_latest = 70
    made, _ = of_loop(whole.slice(1, 2))
    assert numbers(made) == ["2"]
    assert (made.millis_behind_latest, made.fetched_at) == (70, whole.fetched_at)
    assert made.shard.id == SHARD


def test_a_checkpoint_covers_the_batch_or_up_to_a_record() -> None:
    made, held = of_loop(batch_of(1, 2, 3))
    assert made.checkpoint(made[1]) is True
    assert made.checkpoint() is True
    assert held.written == ["2:0", "3:0"]


def test_a_checkpoint_covers_no_more_than_its_batch() -> None:
    """More may be delivered: the batch has come from another thread, or is one of halves."""
    made, held = of_loop(batch_of(1, 2, 3))
    made.checkpointer.permit(at("9"))
    assert made.checkpoint()
    assert held.written == ["3:0"]


def test_the_checkpoint_of_an_empty_batch_covers_all_that_came_before() -> None:
    made, held = of_loop(batch_of())
    made.checkpointer.permit(at("7"))
    assert made.checkpoint() is True
    assert held.written == ["7:0"]


def test_a_checkpoint_says_if_the_lease_is_lost_and_raises_other_errors() -> None:
    made, held = of_loop(batch_of(1, 2))
    other = batch_of(5)[0]
    with pytest.raises(CheckpointError, match="beyond"):
        made.checkpoint(other)

    def refuse(*_: object, **__: object) -> None:
        raise LeaseLostError("another worker has it")

    held.checkpoint = refuse  # type: ignore[method-assign]
    assert made.checkpoint() is False
    assert made.checkpoint(made[0]) is False


def test_a_loop_over_records_goes_through_all_batches_and_checkpoints_the_record_it_is_at() -> None:
    shard = Shard(batch_of(1, 2), batch_of(), batch_of(3))
    with records_of(shard) as records:
        with pytest.raises(ProcessorError, match="There is no record to checkpoint"):
            records.checkpoint()
        for record in records:
            if record.sequence_number == "2":
                assert shard.processed == [], "a batch is processed with its last record"
                assert records.checkpoint()
                assert shard.held.written == ["2:0"]
            if record.sequence_number == "3":
                assert shard.processed == [["1", "2"], []]
    assert shard.processed == [["1", "2"], [], ["3"]]
    assert shard.held.written == ["2:0"]


def test_after_the_last_record_there_is_none_to_checkpoint() -> None:
    with records_of(Shard(batch_of(1))) as records:
        assert [record.sequence_number for record in records] == ["1"]
        with pytest.raises(ProcessorError, match="the loop is at none"):
            records.checkpoint()


# --- in a coroutine


def run(loop: Any, then: Callable[[Any], object]) -> list[Any]:
    async def main() -> list[Any]:
        got = []
        async with loop as items:
            async for item in items:
                got.append(item)
                then(item)
        return got

    return asyncio.run(main())


def test_a_loop_in_a_coroutine_ends_after_its_timeout_and_loses_nothing() -> None:
    shard = Shard(batch_of(1))

    async def main() -> None:
        worker = Delivering(stays=True)
        async with BatchLoop("app", worker, 0.01) as batches:
            assert [batch async for batch in batches] == []
            thread = threading.Thread(
                target=shard.deliver, args=(batches_processor(batches), worker), daemon=True
            )
            thread.start()
            got: list[LoopBatch] = []
            while not got:  # on a slow machine, the time may be over first
                with contextlib.suppress(StopAsyncIteration):
                    got.append(await batches.__anext__())
            assert [numbers(batch) for batch in got] == [["1"]]
            with pytest.raises(StopAsyncIteration):
                await batches.__anext__()
            with pytest.raises(ProcessorError, match="Another loop iterates"):
                aiter(batches)
            thread.join(60)

    asyncio.run(main())
    assert shard.processed == [["1"]]


def test_the_error_that_ended_the_worker_ends_a_loop_in_a_coroutine() -> None:
    with pytest.raises(LeaseLostError, match="gone"):
        run(loop_over(Shard(batch_of(1)), error=LeaseLostError("gone")), lambda _: None)


class Waiting(Delivering):
    """Begins for as long as nobody asks it to end, as one that waits for its stream."""

    def __init__(self) -> None:
        super().__init__()
        self.begins = threading.Event()
        self.was_asked = False

    def start(self) -> None:
        self.begins.set()
        self.was_asked = self.is_ending.wait(30)


def test_a_coroutine_that_is_cancelled_as_its_loop_begins_ends_the_worker() -> None:
    worker = Waiting()

    async def enter() -> None:
        async with BatchLoop("app", worker, None):
            pytest.fail("The block begins.")

    async def main() -> None:
        task = asyncio.create_task(enter())
        await asyncio.to_thread(worker.begins.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert worker.was_asked
    assert worker.shutdowns == 1
