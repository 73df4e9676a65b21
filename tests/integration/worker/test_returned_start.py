"""Delivery begins where ``initialize`` says, whatever the lease's checkpoint is; W2, W3, A4."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis import RecordProcessor, Skip
from sparkinesis.errors import LeaseLostError, ProcessorError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import MOST_TOKEN
from sparkinesis.lease.table import requests
from sparkinesis.local import Fault
from sparkinesis.stream.kpl.pack import aggregate
from tests import pace
from tests.failing import Failing
from tests.integration.worker.scene import (
    FIRST,
    ONCE,
    SECOND,
    UPPER,
    Scene,
    checkpoint,
    crash,
    told,
)
from tests.journal import PATIENCE, Journal, Journaling

RETRIEVALS = ("polling", "efo")
TRIM_HORIZON = ExtendedSequenceNumber("TRIM_HORIZON")


def beginning_at(start: ExtendedSequenceNumber | None, shard: str = FIRST) -> Any:
    """An ``initialize`` that returns a start for one shard."""
    return lambda given: start if given.id == shard else None


def processed_once(scene: Scene, *datas: bytes) -> list[str]:
    """Put records, and let a worker checkpoint them all; return their sequence numbers."""
    numbers = [scene.put(data) for data in datas]
    worker = scene.start(on_records=checkpoint)
    scene.journal.wait_for_data(*datas)
    worker.shutdown(PATIENCE)
    assert scene.row().checkpoint == ExtendedSequenceNumber(numbers[-1])
    return numbers


@pytest.mark.parametrize("done", [0, 2])
def test_a_start_before_the_checkpoint(scene: Scene, done: int) -> None:
    """At the oldest record, or behind another one."""
    numbers = processed_once(scene, b"0", b"1", b"2", b"3")
    again = Journal()
    start = ExtendedSequenceNumber(numbers[done - 1]) if done else TRIM_HORIZON
    scene.start(journal=again, on_initialize=beginning_at(start))
    again.wait_for_data(b"3")
    assert again.data(FIRST) == [b"%d" % n for n in range(done, 4)]
    assert scene.row().checkpoint == start


def test_a_start_behind_the_checkpoint(scene: Scene) -> None:
    numbers = [scene.put(data) for data in (b"0", b"1", b"2", b"3")]
    start = ExtendedSequenceNumber(numbers[2])
    scene.start(on_initialize=beginning_at(start), on_records=checkpoint)
    scene.journal.wait_for_data(b"3")
    assert scene.journal.data(FIRST) == [b"3"]
    scene.journal.wait(lambda: scene.row().checkpoint == ExtendedSequenceNumber(numbers[3]))


@ONCE
@pytest.mark.parametrize("done", [0, 2, 4])
def test_a_start_inside_an_aggregated_record(scene: Scene, done: int) -> None:
    (packed,) = aggregate([("k", None, b"%d" % n) for n in range(5)])
    number = scene.put(packed.data)
    scene.put(b"after")
    start = ExtendedSequenceNumber(number, done)
    scene.start(on_initialize=beginning_at(start))
    scene.journal.wait_for_data(b"after")
    assert scene.journal.data(FIRST) == [b"%d" % n for n in range(done + 1, 5)] + [b"after"]
    assert scene.row().checkpoint == start


@ONCE
def test_a_coroutine_returns_a_start(scene: Scene) -> None:
    numbers = [scene.put(data) for data in (b"0", b"1")]
    seen: list[bytes] = []

    class Own(RecordProcessor):
        async def initialize(self, shard: Any) -> ExtendedSequenceNumber | None:
            return ExtendedSequenceNumber(numbers[0]) if shard.id == FIRST else None

        async def process_records(self, batch: Any, checkpointer: Any) -> None:
            seen.extend(record.data for record in batch)
            scene.journal.write(FIRST, "seen")

    scene.start(processor=Own)
    scene.journal.wait(lambda: b"1" in seen)
    assert seen == [b"1"]


@ONCE
def test_the_checkpoint_itself_costs_no_write_and_no_call(scene: Scene) -> None:
    numbers = processed_once(scene, b"0")
    before = scene.row()
    calls: list[str] = []
    scene.faults(lambda call: calls.append(call.operation) if call.shard == FIRST else None)
    again = Journal()
    scene.start(journal=again, on_initialize=beginning_at(ExtendedSequenceNumber(numbers[0])))
    scene.put(b"1")
    again.wait_for_data(b"1")
    assert calls.count("GetShardIterator") == 1
    assert scene.row().made_ms == before.made_ms


@ONCE
def test_a_checkpoint_before_the_start_is_refused_and_later_ones_are_not(scene: Scene) -> None:
    numbers = [scene.put(data) for data in (b"0", b"1", b"2")]
    errors: list[Exception] = []

    def go_back(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].shard_id != FIRST:
            return
        try:
            checkpointer.checkpoint(numbers[0])
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)
        checkpointer.checkpoint()

    start = ExtendedSequenceNumber(numbers[1])
    scene.start(on_initialize=beginning_at(start), on_records=go_back)
    scene.journal.wait_for_data(b"2")
    assert [str(error)[:22] for error in errors[:1]] == ["A checkpoint at " + numbers[0][:6]]
    assert scene.row().checkpoint == ExtendedSequenceNumber(numbers[2])


@ONCE
def test_a_prepared_checkpoint_gives_way_to_the_start(scene: Scene) -> None:
    numbers = [scene.put(data) for data in (b"0", b"1")]
    first = scene.start(on_records=lambda batch, checkpointer: checkpointer.prepare(state=b"x"))
    scene.journal.wait_for_data(b"0", b"1")
    crash(first)
    assert scene.row().pending is not None
    again = Journal()
    scene.start(journal=again, on_initialize=beginning_at(ExtendedSequenceNumber(numbers[0])))
    again.wait_for_data(b"1")
    assert scene.row().pending is None
    assert again.data(FIRST) == [b"1"]


@ONCE
@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("TRIM_HORIZON", "returned a str"),
        (ExtendedSequenceNumber("SHARD_END"), "returned SHARD_END"),
    ],
)
def test_a_value_that_is_no_start_ends_the_worker_before_any_record(
    scene: Scene, returned: Any, what: str
) -> None:
    scene.put(b"0")
    processor = lambda: Journaling(  # noqa: E731
        scene.journal, on_initialize=lambda shard: returned
    )
    with pytest.raises(ProcessorError, match=what) as raised:
        scene.application(processor=processor).run()
    assert scene.stream in str(raised.value)
    assert scene.journal.data() == []
    assert scene.row().checkpoint == TRIM_HORIZON


@ONCE
def test_a_record_of_another_shard_ends_the_worker_before_any_record(scene: Scene) -> None:
    others = scene.put(b"other", UPPER)
    scene.put(b"0")
    begin = beginning_at(ExtendedSequenceNumber(others))
    processor = lambda: Journaling(scene.journal, on_initialize=begin)  # noqa: E731
    with pytest.raises(ProcessorError, match="a record of another shard") as raised:
        scene.application(processor=processor).run()
    assert FIRST in str(raised.value)
    assert SECOND in str(raised.value)  # the service's words
    assert scene.journal.data(FIRST) == []
    assert scene.row().checkpoint == TRIM_HORIZON


@ONCE
def test_a_start_is_written_under_the_lease_only(scene: Scene) -> None:
    """The lease is taken away while ``initialize`` runs: the processor gets its last call only."""
    numbers = processed_once(scene, b"0", b"1")
    again, table = Journal(), scene.table

    def lose_it(shard: Any) -> ExtendedSequenceNumber | None:
        if shard.id != FIRST or again.calls("lease_lost"):
            return None
        table.write(requests.take(scene.row(), "thief"))
        return ExtendedSequenceNumber(numbers[0])

    scene.start(journal=again, on_initialize=lose_it)
    again.wait(lambda: (FIRST, "lease_lost") in again.calls())
    mine = [call for shard, call, _ in again.entries if shard == FIRST]
    assert mine[:2] == ["initialize", "lease_lost"]
    assert scene.row().checkpoint == ExtendedSequenceNumber(numbers[1])


@ONCE
@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidArgumentException"])
def test_a_start_that_cannot_be_written_yet_is_tried_again_without_another_initialize(
    scene: Scene, code: str
) -> None:
    """Also at a number that the service refuses: it is an expired one, and ends no worker."""
    numbers = [scene.put(data) for data in (b"0", b"1")]
    refusal = Failing("GetShardIterator", Fault(code), times=2, shard=FIRST)
    scene.faults(refusal)
    scene.start(on_initialize=beginning_at(ExtendedSequenceNumber(numbers[0])))
    scene.journal.wait_for_data(b"1")
    assert refusal.met == 2
    assert scene.calls_of(FIRST) == ["initialize", "process_records"]
    assert scene.journal.data(FIRST) == [b"1"]


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_checkpoint_that_is_refused_once_repeats_nothing(
    scene: Scene, retrieval: str, caplog: pytest.LogCaptureFixture, refusals: int
) -> None:
    """Refused twice, it is believed: all that is kept comes again, and the log says so."""
    processed_once(scene, *(b"%d" % n for n in range(3)))
    new = [b"%d" % n for n in range(3, 6)]
    for data in new:
        scene.put(data)
    operation = "SubscribeToShard" if retrieval == "efo" else "GetShardIterator"
    refusing = Failing(operation, Fault("InvalidArgumentException"), times=refusals, shard=FIRST)
    scene.faults(refusing)
    again = Journal()
    scene.start(journal=again, on_records=checkpoint)
    again.wait_for_data(*new)
    assert refusing.met == refusals
    old = [b"0", b"1", b"2"] if refusals == 2 else []
    assert again.data(FIRST) == old + new
    assert len(told(caplog, "asked twice, does not know the checkpoint")) == refusals - 1


@ONCE
def test_a_start_in_a_shard_that_has_expired_is_taken(scene: Scene) -> None:
    """Who reads there tells the loss, and the shard ends. Checked again, it would be blocked."""
    numbers = [scene.put(data) for data in (b"0", b"1")]
    scene.faults(Fault("ResourceNotFoundException"), operation="GetShardIterator", shard=FIRST)
    start = ExtendedSequenceNumber(numbers[0])
    scene.start(on_initialize=beginning_at(start))
    # Nothing announces the write after `initialize`.
    pace.eventually(lambda: scene.row().checkpoint == start)


@ONCE
def test_a_store_that_refuses_the_token_gives_the_lease_up(scene: Scene) -> None:
    """What a processor raises then: the worker acquires the shard again, with a larger token."""
    scene.put(b"0")
    tokens: list[int] = []

    def claim(shard: Any) -> None:
        if shard.id == FIRST:
            tokens.append(shard.fencing_token)
            if len(tokens) < 3:
                raise LeaseLostError("The store has seen a larger token.")

    scene.start(on_initialize=claim)
    scene.journal.wait_for_data(b"0")
    assert tokens == sorted(set(tokens))
    assert tokens[-1] == scene.row().fencing_token


@ONCE
@pytest.mark.parametrize("concurrency", [None, 4])
def test_a_store_that_refuses_a_batch_gives_the_lease_up(
    scene: Scene, concurrency: int | None
) -> None:
    """`on_error` does not apply: nothing is skipped, and the same records come again."""
    scene.put(b"0")
    tokens: list[int] = []

    class Refused(RecordProcessor):
        def initialize(self, shard: Any) -> None:
            self.shard = shard

        def process_record(self, record: Any) -> None:
            tokens.append(self.shard.fencing_token)
            if len(tokens) < 2:
                raise LeaseLostError("The store has seen a larger token.")
            scene.journal.write(self.shard.id, "stored", record)

        def process_records(self, batch: Any, checkpointer: Any) -> None:
            self.process_record(batch[0])

        def lease_lost(self) -> None:
            scene.journal.write(self.shard.id, "lease_lost")

    options = {"concurrency": concurrency}
    scene.start(options, processor=Refused, on_error=Skip())
    scene.journal.wait(lambda: (FIRST, "stored") in scene.journal.calls())
    assert scene.calls_of(FIRST) == ["lease_lost", "stored"]
    assert tokens == sorted(set(tokens))


@ONCE
def test_classes_functions_and_loops_are_given_the_token(scene: Scene) -> None:
    """A3: of one delivery. Each of them begins anew, and so has a larger one."""
    scene.put(b"0")
    first = scene.start(on_initialize=lambda shard: None)
    scene.journal.wait_for_data(b"0")
    (given, *_) = [shard for where, _, shard in scene.journal.entries if where == FIRST]
    first.shutdown(PATIENCE)
    tokens = [given.fencing_token]

    def function(batch: Any, checkpointer: Any) -> None:
        if batch and batch[0].shard_id == FIRST:
            tokens.append(checkpointer.fencing_token)
            scene.journal.write(FIRST, "function")

    second = scene.run(scene.application(processor=function))
    scene.journal.wait(lambda: len(tokens) > 1)
    second.shutdown(PATIENCE)
    del tokens[2:]
    scene.put(b"1")
    with scene.application(processor=None).batches() as batches:
        batch = next(batch for batch in batches if batch.shard.id == FIRST and batch)
        assert batch.shard.fencing_token == batch.checkpointer.fencing_token
        tokens.append(batch.shard.fencing_token)
    assert tokens == sorted(set(tokens))
    assert 0 < tokens[0] < tokens[2] < MOST_TOKEN
