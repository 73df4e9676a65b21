"""Delivering records beside each other: calls that a test ends, in whatever order, and a clock."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.errors import LeaseLostError
from sparkinesis.events import BatchAction, BatchFailed, DeadLettersStored, RecordsSkipped
from sparkinesis.lease.held import HeldLease
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.shard.batcher import ReadEnd
from sparkinesis.worker.lifecycle.shard.concurrent_delivery import (
    ConcurrentDeliverer,
    OpenRecord,
    OpenRecords,
)
from sparkinesis.worker.lifecycle.shard.processing import IDLE, Next, Processing
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
from sparkinesis.worker.options import WorkerOptions
from tests.unit.worker.delivering import SHARD, Held, Setting, Told

Done = Callable[[BaseException | None], None]


def batch_of(**keys: str | None) -> RecordBatch:
    """A batch of records with these numbers, as in ``_7="key"``, and keys."""
    records = [
        Record(data=b"xy", partition_key=key, sequence_number=number.strip("_"))
        for number, key in keys.items()
    ]
    return make_batch(records, stream="s", shard_id=SHARD, millis_behind_latest=0)[0]


class Beside:
    """A shard, the pages that are still to come, and the calls that run."""

    def __init__(self, on_error: OnError, concurrency: int = 2, **options: Any) -> None:
        self.held = Held()
        self.told = Told()
        self.setting = Setting(
            on_error, WorkerOptions(concurrency=concurrency, **options), publish=self.told
        )
        self.setting.calls = cast(Any, self)
        self.checkpointer = Checkpointer(cast(HeldLease, self.held), lambda: 0)
        self.running: dict[str, Done] = {}
        self.begun: list[str] = []
        self.refusal: RuntimeError | None = None
        self.woken = 0
        self.pages: list[RecordBatch] = []
        self.oldest: list[float] = []
        self.in_use: list[int] = []
        self.restarts: list[object] = []
        self.batcher = SimpleNamespace(
            take=self.take,
            at_end=False,
            end=None,
            oldest_at=None,
            reached=None,
            begin=lambda start, unread: self.restarts.append(start),
            give_back=self.in_use.append,
        )
        self.deliverer = ConcurrentDeliverer(
            cast(HeldLease, self.held),
            cast(Any, SimpleNamespace(process_record=None)),
            self.checkpointer,
            cast(Any, self.setting),
            is_ending=lambda: not self.held.held,
            wake=self.wake,
        )
        self.processing = Processing(
            cast(HeldLease, self.held),
            cast(Any, self.batcher),
            self.deliverer,
            cast(Any, self.setting),
            on_page=self.note_page,
        )
        self.pages_noted = 0

    def note_page(self) -> None:
        self.pages_noted += 1

    def wake(self) -> None:
        self.woken += 1

    def take(self, in_use: int) -> RecordBatch | None:
        self.in_use.append(in_use)
        if not self.pages:
            return None
        self.batcher.oldest_at = self.oldest.pop(0) if self.oldest else None
        return self.pages.pop(0)

    def begin(self, _: object, record: UserRecord, done: Done) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.begun.append(record.sequence_number)
        self.running[record.sequence_number] = done

    def process(self, *batches: RecordBatch) -> Next:
        self.pages += batches
        return self.processing.step()

    def end(self, *numbers: str, error: BaseException | None = None) -> None:
        for number in numbers:
            self.running.pop(number)(error)

    def may_checkpoint(self) -> str:
        return str(self.checkpointer._permitted.largest)


def test_a_page_is_a_success_though_its_calls_run_on() -> None:
    """Or a task that has failed once would seem to fail for ever."""
    shard = Beside(Retry())
    shard.process()
    assert shard.pages_noted == 0
    assert shard.process(batch_of(_1="a")) == Next(IDLE)
    assert shard.pages_noted == 1
    shard.end("1")
    shard.process()
    assert shard.pages_noted == 1


def test_as_many_calls_run_as_the_option_says_and_one_of_a_key() -> None:
    shard = Beside(Retry())
    assert shard.process(batch_of(_1="a", _2="a", _3="b", _4="c")) == Next(IDLE)
    assert shard.begun == ["1", "3"]
    shard.end("3")
    assert shard.woken == 1, "the shard's consumer begins the next"
    assert shard.process() == Next(IDLE)
    assert shard.begun == ["1", "3", "4"]
    shard.end("1")
    shard.process()
    assert shard.begun == ["1", "3", "4", "2"]
    assert not shard.deliverer.settle()
    shard.end("4", "2")
    assert shard.deliverer
    assert shard.deliverer.settle()
    assert not shard.deliverer
    assert shard.deliverer.calls.records == 4


def test_a_checkpoint_covers_the_unbroken_run_of_what_is_done() -> None:
    shard = Beside(Retry(), concurrency=3, checkpoint_seconds=9.0)
    shard.process(batch_of(_1="a", _2="b", _3="c"))
    shard.end("2", "3")
    assert shard.process() == Next(IDLE)
    assert shard.may_checkpoint() == "TRIM_HORIZON"
    shard.setting.now += 4.0
    shard.end("1")
    assert shard.process() == Next(5.0), "since the start of the call that ended last"
    assert shard.may_checkpoint() == "3:0"
    assert shard.checkpointer._delivered.batch is None, "the memory of what is done is free"
    shard.setting.now += 5.0
    assert shard.process() == Next(IDLE)
    assert shard.held.places == ["3"]


def test_a_record_that_fails_is_tried_again_in_its_time_and_holds_up_its_key_alone() -> None:
    shard = Beside(Retry(base=4.0))
    shard.process(batch_of(_1="a", _2="a", _3="b", _4="b"))
    shard.end("1", error=ValueError("bad"))
    shard.end("3")
    assert shard.process() == Next(4.0)
    assert shard.begun == ["1", "3", "4"]
    shard.setting.now += 3.0
    assert shard.process() == Next(1.0)
    assert len(shard.begun) == 3
    front = shard.deliverer.front
    assert front is not None
    assert (front.since, len(front.batch), front.has_failed, front.method) == (
        1000.0,
        1,
        True,
        "process_record",
    )
    shard.setting.now += 1.0
    assert shard.process() == Next(IDLE)
    assert shard.begun[3:] == ["1"]
    shard.end("1", error=ValueError("bad"))
    assert shard.process() == Next(8.0), "waits grow"
    shard.setting.now += 8.0
    shard.process()
    shard.end("1")
    shard.process()
    assert shard.begun[4:] == ["1", "2"]
    assert shard.may_checkpoint() == "1:0"
    failed = shard.told.of(BatchFailed)
    assert [(one.first, one.action, one.is_again) for one in failed] == [
        ("1:0", BatchAction.RETRY, False),
        ("1:0", BatchAction.RETRY, True),
    ]


def test_with_all_calls_busy_a_record_that_is_due_waits() -> None:
    shard = Beside(Retry(base=4.0))
    shard.process(batch_of(_1="a", _2="b", _3="c"))
    shard.end("1", error=ValueError("bad"))
    shard.process()
    shard.setting.now += 4.0
    assert shard.process() == Next(IDLE), "a call that ends has it looked at again"
    shard.end("2")
    shard.process()
    assert shard.begun == ["1", "2", "3", "1"]


def test_a_failure_is_a_repetition_until_all_that_failed_have_succeeded() -> None:
    shard = Beside(Retry(base=1.0))
    shard.process(batch_of(_1="a", _2="b", _3="c"))
    shard.end("1", error=ValueError("bad"))
    shard.end("2")
    shard.process()
    shard.end("3", error=ValueError("bad"))
    shard.process()
    assert [one.is_again for one in shard.told.of(BatchFailed)] == [False, True]
    shard.setting.now += 1.0
    shard.process()
    shard.end("1", "3")
    shard.process(batch_of(_4="a"))
    shard.end("4", error=ValueError("bad"))
    shard.process()
    assert shard.told.of(BatchFailed)[-1].is_again is False


def test_a_record_that_is_skipped_counts_as_finished() -> None:
    shard = Beside(Retry(2, base=1.0, then=Skip()), checkpoint_seconds=9.0)
    shard.process(batch_of(_1="a", _2="a"))
    shard.end("1", error=ValueError("bad"))
    shard.process()
    shard.setting.now += 1.0
    shard.process()
    shard.end("1", error=ValueError("bad"))
    assert shard.process() == Next(9.0)
    assert shard.may_checkpoint() == "1:0"
    assert shard.begun == ["1", "1", "2"]
    assert [one.first for one in shard.told.of(RecordsSkipped)] == ["1:0"]
    assert shard.deliverer.calls.records == 0


def test_a_target_that_fails_is_asked_again_and_the_processor_is_not() -> None:
    letters: list[str] = []
    refusals = [OSError("no"), OSError("no")]

    def target(failed: Any) -> None:
        letters.append(failed.batch.records[0].sequence_number)
        if refusals:
            raise refusals.pop()

    shard = Beside(DeadLetter(target), task_backoff=2.0)
    shard.process(batch_of(_1="a", _2="a"))
    shard.end("1", error=ValueError("bad"))
    for pause in (2.0, 4.0):
        assert shard.process() == Next(pause)
        assert shard.may_checkpoint() == "TRIM_HORIZON"
        shard.setting.now += pause
    assert shard.process() == Next(IDLE)
    assert (letters, shard.begun) == (["1"] * 3, ["1", "2"])
    assert shard.may_checkpoint() == "1:0"
    assert len(shard.told.of(DeadLettersStored)) == 1


def test_a_shard_that_is_stopped_waits_for_its_calls_and_begins_no_other() -> None:
    shard = Beside(Stop())
    error = ValueError("bad")
    shard.process(batch_of(_1="a", _2="b", _3="c"))
    shard.end("1", error=error)
    assert shard.process() == Next(IDLE)
    stopped_by = [shard.deliverer.stopped_by]
    assert shard.processing.hold() == IDLE
    shard.end("2")
    assert shard.process() == Next()
    assert [*stopped_by, shard.deliverer.stopped_by] == [None, error]
    assert shard.begun == ["1", "2"]


def test_a_store_that_refuses_the_token_ends_the_lease() -> None:
    shard = Beside(Skip())
    shard.process(batch_of(_1="a"))
    shard.end("1", error=LeaseLostError("a newer token has written"))
    assert shard.process() == Next(end=ShutdownReason.LEASE_LOST)
    assert not shard.held.held
    assert shard.may_checkpoint() == "TRIM_HORIZON"


def test_a_reset_waits_for_the_calls_and_drops_all_that_was_fetched() -> None:
    shard = Beside(Retry(base=1.0))
    shard.process(batch_of(_1="a", _2="b", _3="b"))
    shard.end("1", error=ValueError("bad"))
    shard.process()
    shard.checkpointer.reset("TRIM_HORIZON")
    assert shard.process() == Next(IDLE), "2 runs"
    assert shard.processing.hold() == IDLE
    assert shard.restarts == []
    shard.end("2")
    shard.setting.now += 1.0
    assert shard.process(batch_of(_1="a")) == Next(IDLE)
    assert len(shard.restarts) == 1
    assert shard.begun == ["1", "2", "1"], "once, and not for the attempt that was due"
    shard.end("1")
    shard.process()
    assert not shard.deliverer
    assert shard.begun == ["1", "2", "1"]


def test_a_shard_ends_with_its_last_call() -> None:
    shard = Beside(Retry())
    shard.process(batch_of(_1="a"))
    shard.batcher.at_end, shard.batcher.end = True, ReadEnd()
    shard.in_use.clear()
    assert shard.process() == Next(IDLE)
    shard.end("1")
    assert shard.process() == Next(IDLE, ShutdownReason.SHARD_END)
    assert shard.in_use == [], "nothing is taken behind the end"
    shard.checkpointer.reset("TRIM_HORIZON")
    shard.batcher.at_end, shard.batcher.end = False, None
    assert shard.process() == Next(IDLE)
    assert len(shard.restarts) == 1


def test_batches_in_use_keep_their_memory_and_their_age_until_all_before_is_done() -> None:
    shard = Beside(Retry())
    shard.oldest = [900.0, 905.0, 950.0]
    shard.process(batch_of(_1="a", _2="b"), batch_of(), batch_of(_3="c"))
    assert shard.in_use == [0, 1, 1, 2], "an empty page has none"
    shard.end("2")
    shard.setting.now += 3.0
    shard.process()
    known = shard.deliverer.calls
    assert (known.oldest_at, known.processing_since, shard.in_use[-1]) == (900.0, 1000.0, 2)
    shard.end("1")
    shard.setting.now += 3.0
    shard.process()
    assert (known.oldest_at, known.processing_since, shard.in_use[-1]) == (950.0, 1003.0, 1)
    front = shard.deliverer.front
    assert front is not None
    assert (front.since, front.has_failed) == (1006.0, False)
    shard.end("3")
    shard.process()
    assert shard.deliverer.front is None
    assert [known.oldest_at, known.processing_since, shard.in_use[-1]] == [None, None, 0]
    shard.processing.hold()
    assert shard.in_use[-1] == 0


def test_where_the_system_has_no_thread_the_record_is_tried_a_second_later() -> None:
    shard = Beside(Retry())
    shard.refusal = RuntimeError("can't start new thread")
    assert shard.process(batch_of(_1="a", _2="b")) == Next(1.0)
    assert shard.told.events == []
    shard.refusal = None
    shard.setting.now += 1.0
    assert shard.process() == Next(IDLE)
    assert sorted(shard.begun) == ["1", "2"]
    shard.end("1", "2")
    shard.process()
    assert shard.may_checkpoint() == "2:0"


def test_an_event_loop_that_the_program_has_closed_is_a_failure_of_the_record() -> None:
    shard = Beside(Retry(base=4.0), concurrency=1)
    shard.refusal = RuntimeError("Event loop is closed")
    shard.process(batch_of(_1="a"))
    shard.refusal = None
    assert shard.process() == Next(4.0)
    assert len(shard.told.of(BatchFailed)) == 1


# --- the order of records by key, and the run to checkpoint


def keyed(keys: list[str | None], first: int) -> RecordBatch:
    records = [
        Record(data=b"x", partition_key=key, sequence_number=str(1000 + first + n))
        for n, key in enumerate(keys)
    ]
    return make_batch(records, stream="s", shard_id="0", millis_behind_latest=0)[0]


@given(
    batches=st.lists(
        st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=12), max_size=6
    ),
    most=st.integers(1, 9),
    at_once=st.integers(1, 5),
    seed=st.integers(0, 2**16),
)
def test_each_key_is_in_order_and_the_run_has_no_hole(
    batches: list[list[str | None]], most: int, at_once: int, seed: int
) -> None:
    rng = random.Random(seed)
    open_records = OpenRecords(most)
    left, first, running = list(batches), 0, list[OpenRecord]()
    started: dict[str | None, list[str]] = defaultdict(list)
    finished: set[str] = set()
    run: list[str] = []

    def batches_in_use(run: list[str]) -> int:
        added = batches[: len(batches) - len(left)]
        ends = accumulate(map(len, added))
        return sum(len(run) < end for end in ends)

    while left or open_records or running:
        if left and open_records.has_room:
            open_records.add(keyed(left[0], first))
            first += len(left.pop(0))
        while len(running) < at_once and (one := open_records.start()) is not None:
            started[one.record.partition_key].append(one.record.sequence_number)
            running.append(one)
        busy = Counter(one.record.partition_key for one in running if one.record.partition_key)
        assert not busy or max(busy.values()) == 1
        assert len(running) <= most
        one = running.pop(rng.randrange(len(running)))
        finished.add(one.record.sequence_number)
        for part in open_records.finish(one):
            run += [record.sequence_number for record in part.records]
        assert finished.issuperset(run)
        assert open_records.batches == batches_in_use(run)
    total = sum(map(len, batches))
    assert run == [str(1000 + n) for n in range(total)]
    assert all(numbers == sorted(numbers) for key, numbers in started.items() if key is not None)


def test_a_slow_record_holds_up_its_key_and_at_most_as_many_others() -> None:
    open_records = OpenRecords(4)
    open_records.add(keyed(["slow", "a", "slow", "b", "c", "d"], 0))
    begun = []
    slow = open_records.start()
    assert slow is not None
    while (one := open_records.start()) is not None:
        begun.append(one.record.partition_key)
        assert open_records.finish(one) == []
    assert begun == ["a", "b"]
    assert not open_records.has_room
    (run,) = open_records.finish(slow)
    assert [record.partition_key for record in run.records] == ["slow", "a"]


def test_a_batch_may_be_added_while_fewer_records_are_open_than_may_be() -> None:
    records = OpenRecords(2)
    rooms = [records.has_room]
    assert records.first is None
    for n, key in enumerate("ab"):
        records.add(keyed([key], n))
        rooms.append(records.has_room)
    assert rooms == [True, True, False]
    assert records.first is records.start()


def test_a_batch_whose_records_are_finished_takes_no_memory() -> None:
    records = OpenRecords(2)
    batch = keyed(["a", "b"], 0)
    is_there = weakref.ref(batch._rows)
    records.add(batch)
    del batch
    while (one := records.start()) is not None:
        records.finish(one)
    del one
    gc.collect()
    assert is_there() is None
