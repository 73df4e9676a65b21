"""Delivering with ``on_error``: what is tried again and when, by a clock that a test moves."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from sparkinesis.errors import (
    AccessDeniedError,
    CheckpointError,
    LeaseLostError,
    LeaseTableError,
    LeaseTableUnavailableError,
    ProcessorError,
    SparkinesisError,
)
from sparkinesis.events import (
    BatchAction,
    BatchFailed,
    DeadLettersStored,
    RecordsSkipped,
    Span,
    TaskFailed,
)
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.metrics.metrics import Extent
from sparkinesis.metrics.tally import Distribution, Tally
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.early_records import OutOfOrderError
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.targets import FailedRecords
from sparkinesis.worker.lifecycle.shard.batcher import ReadEnd
from sparkinesis.worker.lifecycle.shard.delivery import _extent, span_of
from sparkinesis.worker.lifecycle.shard.processing import IDLE, Next
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
from sparkinesis.worker.processors.processor import ProcessorShard
from sparkinesis.worker.reporting.shard_reporter import ShardReporter
from sparkinesis.worker.sink.sink import ShardSinks
from tests.unit.worker.delivering import SHARD, Held, Shard, Told, at, batch_of


def test_a_retry_waits_its_time_and_no_less() -> None:
    shard = Shard(Retry(base=1.0), "2")
    shard.add(1, 2)
    assert shard.deliverer.deliver() == 1.0
    shard.setting.now += 0.75
    assert shard.deliverer.deliver() == 0.25
    assert len(shard.given) == 1, "too early"
    shard.setting.now += 0.25
    assert shard.deliverer.deliver() == 2.0
    shard.processor.bad.clear()
    shard.setting.now += 2.0
    assert shard.deliverer.deliver() == 0.0
    assert shard.given == [["1", "2"]] * 3
    assert not shard.deliverer
    assert shard.may_checkpoint() == "2:0"


@pytest.mark.parametrize("last_is_bad", [False, True])
def test_one_that_is_left_behind_a_checkpoint_is_tried_alone(*, last_is_bad: bool) -> None:
    taken: list[str] = []
    letter = DeadLetter(
        lambda failed: taken.extend(r.sequence_number for r in failed.batch.records)
    )
    shard = Shard(letter, "1", *(["3"] if last_is_bad else []))
    shard.processor.checkpoint_at = "2"
    shard.add(1, 2, 3)
    shard.step_all()
    assert shard.given == [["1", "2", "3"], ["3"]]
    assert taken == (["3"] if last_is_bad else [])


def test_finding_few_bad_records_costs_few_calls() -> None:
    shard = Shard(Skip(), "777")
    shard.add(*range(1000))
    shard.step_all()
    assert len(shard.given) <= 2 * 10 + 1


def test_halves_are_not_tried_as_often_as_the_whole() -> None:
    shard = Shard(Retry(3, base=1.0, then=Skip()), "1")
    shard.add(1, 2)
    waits = []
    while shard.deliverer:
        waits.append(shard.deliverer.deliver())
        shard.setting.now += waits[-1]
    assert shard.given == [["1", "2"]] * 3 + [["1"], ["2"]]


def test_a_refusing_target_is_asked_again_ever_more_slowly_and_the_processor_is_not() -> None:
    asked: list[float] = []

    def target(failed: Any) -> None:
        asked.append(shard.setting.now)
        if len(asked) < 5:
            raise SystemExit("a target may do anything")

    shard = Shard(DeadLetter(target), "1", task_backoff=1.0)
    shard.add(1)
    waits = []
    while shard.deliverer:
        waits.append(shard.deliverer.deliver())
        if shard.deliverer:
            assert shard.may_checkpoint() == "TRIM_HORIZON", "not before the letter is delivered"
        shard.setting.now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 0.0]
    assert shard.given == [["1"]]
    assert shard.may_checkpoint() == "1:0"


def test_a_refusing_target_is_not_waited_for_on_account_of_the_processor() -> None:
    """However often a record has failed, in a large batch and by itself."""
    asked: list[str] = []

    def target(failed: Any) -> None:
        asked.append(failed.batch.records[0].sequence_number)
        if asked.count(asked[-1]) == 1:
            raise OSError("not now")

    shard = Shard(Retry(9, base=0.0, then=DeadLetter(target)), "50", "51", task_backoff=1.0)
    shard.add(*range(100))
    waits = []
    while shard.deliverer:
        waits.append(shard.deliverer.deliver())
        shard.setting.now += waits[-1]
    assert [wait for wait in waits if wait] == [1.0, 1.0]
    assert asked == ["50", "50", "51", "51"]


@pytest.mark.parametrize("policy", [Retry(attempts=1, then=Skip()), Skip(), Stop()])
@pytest.mark.parametrize("kind", [AccessDeniedError, LeaseTableError, LeaseTableUnavailableError])
def test_a_checkpoint_that_is_refused_is_no_fault_of_the_records(
    kind: type[SparkinesisError], policy: OnError, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions: list[BatchAction] = []
    report = lambda _, span, action, error: actions.append(action)  # noqa: E731
    monkeypatch.setattr(ShardReporter, "batch_failed", report)
    shard = Shard(policy, task_backoff=2.0)
    shard.processor.checkpoint_at = "1"
    refusals: list[SparkinesisError] = [kind("no"), kind("no")]

    def refuse(at: Any, timestamp_ms: int | None = None, **more: Any) -> None:
        if refusals:
            raise refusals.pop()

    shard.held.checkpoint = refuse  # type: ignore[method-assign]
    shard.add(1, 2)
    # What is denied is so at once, and maybe for hours; an outage has taken its time.
    for pause in (2.0, 2.0 if kind is LeaseTableUnavailableError else 4.0):
        assert shard.deliverer.deliver() == pause
        shard.setting.now += pause
    assert shard.deliverer.deliver() == 0.0
    assert shard.given == [["1", "2"]] * 3
    assert actions == [BatchAction.WAIT] * 2
    assert shard.deliverer.stopped_by is None
    assert not shard.deliverer


def test_what_fails_while_the_shard_goes_is_counted_but_a_lost_lease_is_no_failure() -> None:
    shard = Shard(Stop(), "1")
    shard.held.held = False
    shard.add(1)
    assert shard.deliverer.deliver() == 0.0
    assert shard.deliverer.stopped_by is None
    assert shard.may_checkpoint() == "TRIM_HORIZON"
    (failure,) = shard.setting.failures.snapshot()
    assert failure.error == "ValueError: bad"
    assert "while the shard was being released" in failure.what
    assert failure.shard_ids == (SHARD,)

    def lose(*_: object) -> None:
        raise LeaseLostError("another worker has it")

    shard.processor.then = lose
    shard.deliverer.deliver()
    assert shard.setting.failures.snapshot() == (failure,)


def test_automatic_checkpoints_that_fail_are_tried_ever_more_slowly_until_one_succeeds() -> None:
    shard = Shard(Retry(), checkpoint_records=1, task_backoff=2.0)
    write = shard.held.checkpoint
    pauses: list[float] = []

    def refuse(*_: object, **__: object) -> None:
        raise LeaseTableUnavailableError("away")

    for tries in (3, 1):
        shard.held.checkpoint = refuse  # type: ignore[method-assign]
        shard.add(10 - tries)
        shard.deliverer.deliver()
        pauses += [shard.processing.checkpoint_meanwhile() for _ in range(tries)]
        shard.held.checkpoint = write  # type: ignore[method-assign]
        assert shard.processing.checkpoint_meanwhile() == IDLE
    assert pauses == [2.0, 4.0, 8.0, 2.0]
    assert shard.held.places == ["7", "9"]
    assert shard.setting.failures.snapshot() != ()


def test_an_empty_batch_is_delivered_although_a_prepared_checkpoint_was_committed() -> None:
    shard = Shard(Retry(), held=Held("1", "20:3"))
    shard.checkpointer.commit_pending()
    shard.add()
    shard.add(20, 21)
    shard.step_all()
    assert shard.given == [[], ["21"]]


class Taken:
    """As much of a batcher as delivering asks for: pages that a test gives, and where they end."""

    def __init__(self) -> None:
        self.again = 0
        self.rested: list[int] = []
        self.batches: list[RecordBatch] = []
        self.end: ReadEnd | None = None
        self.last_ends = False
        """True if the shard ends with the last of the batches."""
        self.reached: Position = TRIM_HORIZON
        self.oldest_at: float | None = None
        self.begun: list[tuple[Position, WantedRecords | None]] = []

    @property
    def at_end(self) -> bool:
        return self.end is not None

    def take(self, batches_in_use: int) -> RecordBatch | None:
        assert batches_in_use == 0
        batch = self.batches.pop(0) if self.batches else None
        if self.last_ends and not self.batches:
            self.end = ReadEnd()
        return batch

    def take_again(self) -> None:
        self.again += 1

    def give_back(self, in_use: int) -> None:
        self.rested.append(in_use)

    def begin(self, start: Position, *, unread: WantedRecords | None) -> None:
        self.begun.append((start, unread))


def with_pages(
    on_error: OnError = Retry(),  # noqa: B008 - a value
    *bad: str,
    **options: Any,
) -> tuple[Shard, Taken]:
    taken = Taken()
    return Shard(on_error, *bad, batcher=taken, **options), taken


def test_records_that_were_left_out_are_read_again_also_if_moving_back_fails_at_first() -> None:
    shard, taken = with_pages()
    shard.checkpointer.permit(at("30"))
    shard.checkpointer.checkpoint("30")
    taken.batches.append(batch_of(31))
    found = OutOfOrderError("two events have changed places", AfterRecord("10"))
    with (
        patch.object(taken, "take", side_effect=found),
        patch.object(shard.held, "move", side_effect=LeaseTableUnavailableError("throttled")),
        pytest.raises(LeaseTableUnavailableError),
    ):
        shard.process()
    assert shard.process() == Next(IDLE)
    (failure,) = shard.setting.failures.snapshot()
    assert failure.what == f"Fetching failed on shard {SHARD}; it begins anew"
    assert shard.held.places == ["30", "10"]
    assert shard.given == [], "what lies behind waits"
    shard.process()
    assert [start for start, _ in taken.begun] == [AfterRecord("10")]
    assert shard.given == [["31"]]


def test_the_next_step_is_due_when_a_page_or_a_checkpoint_is() -> None:
    shard, taken = with_pages(checkpoint_seconds=9.0)
    assert shard.process() == Next(15.0), "there may be pages of a silence"
    taken.batches = [batch_of(7), batch_of()]
    assert shard.process() == Next()
    assert shard.process() == Next(), "an empty page is no batch"
    assert shard.given == [["7"]]
    assert shard.process() == Next(9.0)
    shard.setting.now += 9.0
    assert shard.process() == Next(IDLE)
    assert shard.held.places == ["7"]
    taken.end = ReadEnd()
    assert shard.process() == Next(end=ShutdownReason.SHARD_END)
    shard.held.held = False
    assert shard.process() == Next(end=ShutdownReason.LEASE_LOST)


def test_silence_is_noted_behind_a_checkpoint_of_all_that_was_delivered() -> None:
    shard, taken = with_pages()

    def known_at(reached: Position) -> Any:
        shard.held.known = None
        taken.reached, taken.batches = reached, [batch_of()]
        shard.process()
        return shard.held.known

    instant = AtTimestamp(5_000)
    assert known_at(TRIM_HORIZON) is known_at(AfterRecord("8", 9_000)) is None
    assert known_at(instant) == (at("TRIM_HORIZON"), instant)
    taken.batches = [batch_of(7)]
    shard.process()
    silent = AfterRecord("7", 9_000, sub_sequence_number=3)
    assert known_at(silent) is None, "7 is not checkpointed"
    shard.checkpointer.checkpoint()
    assert known_at(silent) == (at("7"), AfterRecord("7", 9_000))
    assert known_at(AfterRecord("8", 9_000)) is None
    assert known_at(instant) is None
    taken.end = ReadEnd()
    assert known_at(silent) is None


@pytest.mark.parametrize("to", [AtTimestamp(5_000), TRIM_HORIZON])
def test_after_a_reset_reading_begins_anew_and_what_was_fetched_is_dropped(to: Position) -> None:
    shard, taken = with_pages()
    shard.add(7)
    shard.checkpointer.reset(to.instant if isinstance(to, AtTimestamp) else "TRIM_HORIZON")
    assert shard.process() == Next(IDLE)
    unread = WantedRecords(to) if isinstance(to, AtTimestamp) else None
    assert (taken.begun, shard.given) == ([(to, unread)], [])


def test_a_span_and_an_extent_name_the_first_record_and_the_last() -> None:
    batch, empty = batch_of(7, 8, 9), batch_of()
    assert span_of(batch) == Span(3, "7:0", "9:0")
    assert _extent(batch) == Extent("7", "9", 3)
    assert (span_of(empty), _extent(empty)) == (Span(0, "", ""), None)


async def _later() -> None: ...


@pytest.mark.parametrize("policy", [Retry(1, then=Skip()), Stop(), DeadLetter(print)], ids=str)
def test_a_call_that_returns_a_coroutine_is_asked_of_no_policy(policy: OnError) -> None:
    """Its records are neither checkpointed nor skipped: they come again."""
    tally = Tally()
    shard = Shard(policy, metrics=tally)
    process = shard.processor.process_records

    def forget(batch: RecordBatch, checkpointer: Checkpointer) -> Any:
        process(batch, checkpointer)
        return _later()

    shard.add(3, 4)
    with patch.object(shard.processor, "process_records", forget):
        for _ in range(3):
            with pytest.raises(ProcessorError, match=r"forget returned a coroutine"):
                shard.deliverer.deliver()
            assert shard.may_checkpoint() == "TRIM_HORIZON"
    assert (shard.deliverer.calls.processing_since, shard.deliverer.calls.records) == (None, 0)
    assert measured(tally) == {("process.records.duration", "failed"): 3}
    shard.step_all()
    assert shard.given == [["3", "4"]] * 4
    assert shard.may_checkpoint() == "4:0"


def measured(tally: Tally) -> dict[tuple[str, ...], float]:
    """The values of counters, and the numbers of calls, by metric and labels without the stream."""
    return {
        (one.metric, *one.labels[1:]): one.value.count
        if isinstance(one.value, Distribution)
        else one.value
        for one in tally.series()
    }


def test_records_and_bytes_count_once_they_are_processed_and_only_then() -> None:
    """A retry, halves, a record that is skipped, and one that is checkpointed before the error."""
    tally = Tally()
    shard = Shard(Skip(), "12", metrics=tally)
    shard.processor.checkpoint_at = "11"

    def take_time(batch: RecordBatch, _: Checkpointer) -> None:
        shard.setting.now += 1.0 + len(batch)

    shard.processor.then = take_time
    shard.add(10, 11, 12, 13)
    shard.add()
    shard.step_all()
    assert shard.given == [["10", "11", "12", "13"], ["12"], ["13"], []]
    assert shard.deliverer.calls.records == 1
    assert measured(tally) == {
        ("records.processed",): 1,
        ("bytes.processed",): 2,
        ("process.records.duration", "ok"): 2,
        ("process.records.duration", "failed"): 2,
    }
    sums = {
        one.labels[1]: one.value.sum
        for one in tally.series()
        if isinstance(one.value, Distribution)
    }
    assert sums == {"failed": 7.0, "ok": 3.0}


_OTHER_LOOPS = [
    "<asyncio.locks.Semaphore object> is bound to a different event loop",
    "Task <Task> got Future <Future> attached to a different loop",
    "Event loop is closed",
]


@pytest.mark.parametrize("text", _OTHER_LOOPS)
@pytest.mark.parametrize("resort", [Skip(), Stop(), DeadLetter(lambda failed: None)])
def test_an_object_of_another_event_loop_gives_up_no_record(
    text: str, resort: Skip | Stop | DeadLetter
) -> None:
    shard = Shard(Retry(2, base=1.0, then=resort))
    shard.add(1, 2)
    before = shard.may_checkpoint()
    with patch.object(shard.processor, "process_records", side_effect=_wrapped(text)):
        assert shard.deliverer.deliver() > 0, "it may heal"
        shard.setting.now += 2.0
        for _ in range(2):
            with pytest.raises(ProcessorError, match="in `initialize`") as raised:
                shard.deliverer.deliver()
    assert text in str(raised.value)
    assert shard.may_checkpoint() == before
    shard.deliverer.deliver()
    assert shard.given[-1] == ["1", "2"]


def _wrapped(text: str) -> Exception:
    """An error of the user's own, for an error of asyncio."""
    error = ValueError("the order was not sent")
    error.__cause__ = RuntimeError(text)
    return error


@pytest.mark.parametrize("error", [ValueError(_OTHER_LOOPS[0]), RuntimeError("a bad order")])
def test_other_errors_are_subject_to_the_policy(error: Exception) -> None:
    shard = Shard(Skip(), "1")
    shard.add(1)
    with patch.object(shard.processor, "process_records", side_effect=error):
        shard.deliverer.deliver()
    assert not shard.deliverer


# --- what a step delivers, and when the next one is


@pytest.mark.parametrize("wants_empty", [False, True])
def test_an_empty_page_is_a_batch_if_the_processor_wants_it(*, wants_empty: bool) -> None:
    shard, taken = with_pages(call_even_for_empty_batches=wants_empty)
    taken.batches = [batch_of()]
    assert shard.process() == Next()
    taken.end = ReadEnd()
    assert shard.process() == Next(end=ShutdownReason.SHARD_END)
    assert shard.given == ([[]] if wants_empty else []), "the end is none"


def test_rows_that_are_due_have_the_processor_called_and_looked_at_every_three_seconds(
    tmp_path: Path,
) -> None:
    """So that it can checkpoint in a silence; rows of a failed call are dropped."""
    sinks = ShardSinks(lambda: shard.setting.now)
    shard, taken = with_pages(Retry(base=9.0), sinks=sinks)
    assert shard.process() == Next(15.0)
    place = ProcessorShard(SHARD, "app", "s", "w", at("TRIM_HORIZON"), sinks=sinks)
    sink = place.sink(tmp_path, pa.schema([("n", pa.int64())]), max_age=20.0)
    assert shard.process() == Next(3.0)
    shard.processor.then = lambda batch, _: sink.write([{"n": len(batch)}])
    shard.processor.bad = {"8"}
    taken.batches = [batch_of(7), batch_of()]
    assert shard.process() == Next()
    assert shard.process() == Next(), "they are not due yet"
    taken.batches = [batch_of(8)]
    assert shard.process() == Next(3.0), "the next attempt is due later"
    assert sink.buffered_rows == 1, "those of 8 come again"
    shard.deliverer.clear()
    shard.processor.then = lambda *_: None
    shard.setting.now += 20.0
    taken.batches = [batch_of()]
    assert shard.process() == Next()
    assert shard.given == [["7"], ["8"], []]


def test_while_an_automatic_checkpoint_fails_nothing_more_is_delivered() -> None:
    shard, taken = with_pages(checkpoint_records=1, task_backoff=2.0)
    taken.batches = [batch_of(7), batch_of(8), batch_of(9)]
    assert shard.process() == Next()
    with patch.object(shard.held, "checkpoint", side_effect=LeaseTableUnavailableError("away")):
        for pause in (2.0, 4.0):
            assert shard.process() == Next(pause)
            assert shard.deliverer.automatic.refused_since == 1000.0, "since the first refusal"
            shard.setting.now += pause
    assert shard.given == [["7"]]
    assert shard.process() == Next()
    assert shard.deliverer.automatic.refused_since is None
    assert shard.given == [["7"], ["8"]]
    with (
        patch.object(shard.held, "checkpoint", side_effect=LeaseLostError("another has it")),
        pytest.raises(LeaseLostError),
    ):
        shard.process()


def test_a_step_takes_a_page_only_when_the_one_before_is_done() -> None:
    shard, taken = with_pages(Retry(base=0.5), "7")
    taken.batches, taken.last_ends = [batch_of(7), batch_of(8)], True
    assert shard.process() == Next(0.5)
    shard.setting.now += 0.5
    assert shard.process() == Next(1.0)
    assert len(taken.batches) == 1
    shard.processor.bad = {"8"}
    shard.setting.now += 1.0
    assert shard.process() == Next()
    assert shard.process() == Next(0.5), "the end comes once all is done"
    shard.processor.bad.clear()
    shard.setting.now += 0.5
    assert shard.process() == Next(end=ShutdownReason.SHARD_END)


def test_a_shard_that_is_moved_in_its_last_call_does_not_end() -> None:
    shard, taken = with_pages()
    taken.batches, taken.last_ends = [batch_of(7)], True
    shard.processor.then = lambda _, checkpointer: checkpointer.reset("TRIM_HORIZON")
    assert shard.process() == Next()


def test_the_end_of_a_range_is_no_end_of_the_shard() -> None:
    shard, taken = with_pages()
    taken.end = ReadEnd(ShutdownReason.REQUESTED)
    assert shard.process() == Next(end=ShutdownReason.REQUESTED)


def test_a_batch_with_what_is_no_sequence_number_is_fetched_again() -> None:
    shard, taken = with_pages()
    good = batch_of(7)
    bad = [Record(data=b"x", partition_key="k", sequence_number=one) for one in ("x", "x")]
    taken.batches = [make_batch(bad, stream="s", shard_id=SHARD, millis_behind_latest=0)[0], good]
    with pytest.raises(ValueError, match="is not a sequence number"):
        shard.process()
    assert taken.again == 1
    assert shard.process() == Next()
    assert shard.given == [["7"]]


def test_an_error_of_the_program_fetches_nothing_again() -> None:
    shard, taken = with_pages(processor=None)
    taken.batches = [batch_of(7)]
    with (
        patch.object(shard.deliverer, "deliver", side_effect=CheckpointError("no")),
        pytest.raises(CheckpointError),
    ):
        shard.process()
    assert taken.again == 0
    assert shard.process() == Next()
    assert shard.given == [["7"]]


def test_a_shard_on_hold_delivers_nothing_but_is_moved_and_checkpointed() -> None:
    shard, taken = with_pages(checkpoint_seconds=9.0)
    taken.batches = [batch_of(7)]
    shard.process()
    shard.add(8)
    assert shard.processing.hold() == 9.0
    assert taken.rested == [1], "the batch that waits keeps its memory"
    shard.setting.now += 9.0
    assert shard.processing.hold() == IDLE
    assert shard.held.places == ["7"]
    shard.checkpointer.reset("TRIM_HORIZON")
    assert shard.processing.hold() == IDLE
    assert taken.begun == [(TRIM_HORIZON, None)]
    assert taken.rested == [1, 1, 0]
    assert shard.given == [["7"]]
    assert shard.deliverer.settle()


# --- what may be checkpointed, and is counted


def test_after_a_reset_a_failure_permits_no_checkpoint_of_what_is_to_come_again() -> None:
    shard, _ = with_pages(Retry(base=1.0), "3")
    shard.add(7)
    shard.deliverer.deliver()
    shard.checkpointer.reset("TRIM_HORIZON")
    shard.process()
    shard.add(3)
    shard.deliverer.deliver()
    assert shard.may_checkpoint() == "TRIM_HORIZON"


def test_what_a_prepared_checkpoint_has_covered_is_in_no_failure() -> None:
    """It was fetched before the checkpoint was committed."""
    events = Told()
    shard = Shard(Retry(base=1.0), "21", held=Held("1", "20:0"), publish=events)
    shard.add(19, 20)
    shard.add(20, 21)
    shard.checkpointer.commit_pending()
    assert shard.deliverer.deliver() == 0.0
    assert shard.given == []
    shard.deliverer.deliver()
    assert shard.given == [["21"]]
    (failed,) = events.of(BatchFailed)
    assert (failed.records, failed.first, failed.last) == (1, "21:0", "21:0")
    assert shard.deliverer.front is not None
    assert len(shard.deliverer.front.batch) == 1


def test_packed_records_are_unpacked_once_and_into_the_form_that_is_asked_for() -> None:
    shard = Shard(Retry())
    (packed,) = aggregate([("k", None, b"x"), ("k", None, b"y")])
    record = Record(data=packed.data, partition_key="k", sequence_number="7")
    batch, _ = make_batch([record], stream="s", shard_id=SHARD, millis_behind_latest=0)
    shard.deliverer.add(batch)
    shard.step_all()
    assert shard.given == [["7", "7"]]
    assert batch._rows._columns is None


@pytest.mark.parametrize(("bad", "failures"), [([], 0), (["7"], 0), (["7"], 1)])
def test_a_batch_that_is_done_takes_no_memory(bad: list[str], failures: int) -> None:
    """Also one that was stored as a dead letter, after a target that had failed."""
    left = [OSError("the disk is full")] * failures

    def store(_: object) -> None:
        if left:
            raise left.pop()

    shard = Shard(DeadLetter(store), *bad)
    batch = batch_of(7)
    is_there = weakref.ref(batch)
    shard.deliverer.add(batch)
    shard.processor.then = lambda *_: None
    while shard.deliverer:
        shard.setting.now += shard.deliverer.deliver()
    del batch
    gc.collect()
    assert is_there() is None


# --- what is told of a shard


def test_the_front_is_what_the_processor_has_since_the_first_call_for_it() -> None:
    shard = Shard(Retry(base=1.0), "1", "8")
    seen: list[Any] = []

    def look(*_: object) -> None:
        seen.append(shard.deliverer.front)
        assert shard.deliverer.calls.processing_since == shard.setting.now

    shard.processor.then = look
    assert shard.deliverer.front is None
    shard.deliverer.add(batch_of(1, 2), 990.0)
    shard.deliverer.add(batch_of(8), 995.0)
    for now in (1000.0, 1001.0, 1003.0):
        shard.setting.now = now
        if now == 1003.0:
            shard.processor.bad.remove("1")
        shard.deliverer.deliver()
        assert shard.deliverer.calls.oldest_at == 995.0
    assert [(one.since, len(one.batch), one.has_failed) for one in seen] == [
        (1000.0, 2, False),
        (1000.0, 2, True),
        (1000.0, 2, True),
    ]
    assert shard.deliverer.front is None
    shard.setting.now = 1005.0
    shard.deliverer.deliver()
    assert (seen[-1].since, seen[-1].has_failed) == (1005.0, False)
    assert shard.deliverer.front == seen[-1]
    shard.processor.bad.clear()
    shard.setting.now = 1006.0
    shard.deliverer.deliver()
    assert shard.deliverer.front is None
    assert shard.deliverer.calls.oldest_at is None


def test_a_front_that_the_lease_table_has_refused_has_failed() -> None:
    shard = Shard(Retry())

    def refuse(*_: object) -> None:
        raise AccessDeniedError("no")

    shard.processor.then = refuse
    shard.add(7)
    shard.setting.now += shard.deliverer.deliver()
    shard.deliverer.deliver()
    assert shard.deliverer.front is not None
    assert shard.deliverer.front.has_failed


def test_what_is_dropped_is_in_no_front() -> None:
    shard, taken = with_pages(Retry(base=1.0), "7")
    taken.batches, taken.oldest_at = [batch_of(7)], 990.0
    shard.process()
    oldest = [shard.deliverer.calls.oldest_at]
    shard.checkpointer.reset("TRIM_HORIZON")
    shard.process()
    assert shard.deliverer.front is None
    assert [*oldest, shard.deliverer.calls.oldest_at] == [990.0, None]


def test_a_failure_is_a_repetition_until_a_call_succeeds() -> None:
    events = Told()
    shard = Shard(Retry(base=1.0), "1", "3", publish=events)
    for number in (1, 2, 3):
        shard.add(number)
    for _ in range(2):
        shard.setting.now += shard.deliverer.deliver()
    shard.processor.bad.remove("1")
    for _ in range(3):
        shard.deliverer.deliver()
    failed = events.of(BatchFailed)
    assert [(one.first, one.is_again) for one in failed] == [
        ("1:0", False),
        ("1:0", True),
        ("3:0", False),
    ]
    assert {(one.records, one.last) for one in failed} == {(1, "1:0"), (1, "3:0")}


@pytest.mark.parametrize("is_ending", [True, False])
def test_a_call_that_is_cancelled_is_no_failure_only_while_the_shard_is_left(
    *, is_ending: bool
) -> None:
    events = Told()
    shard = Shard(Retry(base=1.0), publish=events)

    def cancel(*_: object) -> None:
        shard.held.held = not is_ending
        raise CancelledError

    shard.processor.then = cancel
    shard.add(7)
    assert shard.deliverer.deliver() == (0.0 if is_ending else 1.0)
    assert shard.may_checkpoint() == "TRIM_HORIZON"
    assert len(events.of(BatchFailed)) == int(not is_ending)


def test_a_letter_names_its_records_and_where_they_come_from() -> None:
    letters: list[FailedRecords] = []
    events = Told()
    tries = [OSError("not now")]

    def target(failed: FailedRecords) -> None:
        letters.append(failed)
        if tries:
            raise tries.pop()

    shard = Shard(DeadLetter(target), "8", publish=events)
    shard.setting.stream = StreamIdentifier("123456789012", "flights", 1763700000)
    shard.add(7, 8)
    while shard.deliverer:
        shard.setting.now += shard.deliverer.deliver()
    assert len(letters) == 2
    for letter in letters:
        assert [record.sequence_number for record in letter.batch.records] == ["8"]
        assert str(letter.error) == "bad"
        assert (letter.application, letter.stream, letter.shard_id) == ("app", "s", SHARD)
        assert letter.stream_id == "123456789012:flights:1763700000"
    told = events.of(TaskFailed, DeadLettersStored, RecordsSkipped)
    assert [type(one) for one in told] == [TaskFailed, DeadLettersStored]
    assert f"target failed on record 8:0 of shard {SHARD}" in told[0].what
    assert (told[1].records, told[1].first, told[1].last) == (1, "8:0", "8:0")
    shard.setting.stream = None
    shard.add(8)
    shard.deliverer.deliver()
    assert letters[-1].stream_id is None
