"""Automatic checkpoints: when they are due, and what they cover, by a clock that a test moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.on_error import OnError, Retry, Skip
from sparkinesis.worker.processors.processor import ProcessorShard
from tests.unit.worker.delivering import SHARD, Shard, batch_of

SLOW = 3.0
"""Seconds that a call takes, in tests of time."""


class Automatic(Shard):
    """A shard whose processor never checkpoints, and whose calls may take a while."""

    def __init__(self, on_error: OnError, *bad: str, takes: float = 0.0, **options: Any) -> None:
        super().__init__(on_error, *bad, **options)

        def take_time(*_: object) -> None:
            self.setting.now += takes

        self.processor.then = take_time

    def step(self) -> float:
        """As the consumer of a shard does: a checkpoint that is due comes first."""
        self.deliverer.automatic.write_if_due()
        return self.deliverer.deliver()

    def step_all(self) -> None:
        while self.deliverer:
            self.step()
        self.deliverer.automatic.write_if_due()

    def due_in(self) -> float | None:
        return self.deliverer.automatic.due_in

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.given]


def test_each_so_many_records_are_checkpointed_however_large_the_batches() -> None:
    shard = Automatic(Retry(), checkpoint_records=4)
    shard.add(1, 2, 3)
    shard.add(*range(4, 12))
    shard.step_all()
    assert shard.sizes == [3, 1, 4, 3]
    assert shard.held.places == ["4", "8"]
    assert shard.due_in() is None, "three records are left, and no time says when"


def test_what_is_processed_waits_no_longer_than_it_may_also_without_more_records() -> None:
    shard = Automatic(Retry(), takes=SLOW, checkpoint_seconds=10.0)
    for n in range(1, 6):
        shard.add(n)
    shard.step_all()
    # Calls began at 0, 3, 6, 9 and 12 s: the one at 12 s was the first after 10 s.
    assert shard.held.places == ["4"]
    assert shard.due_in() == 7.0, "10 s from the beginning of the last call, which took 3"
    shard.setting.now += 6.5
    shard.deliverer.automatic.write_if_due()
    assert shard.held.places == ["4"]
    shard.setting.now += 0.5
    shard.deliverer.automatic.write_if_due()
    assert shard.held.places == ["4", "5"]


def test_the_time_counts_from_the_call_that_began_first_though_it_ended_last() -> None:
    """Calls of one shard that run at the same time end in any order."""
    shard = Automatic(Retry(), checkpoint_seconds=10.0)
    shard.setting.now = 9.0
    shard.deliverer.automatic.processed(batch_of(1), since=8.0)
    assert shard.due_in() == 9.0
    shard.deliverer.automatic.processed(batch_of(2), since=2.0)
    assert shard.due_in() == 3.0


def test_a_wait_that_no_clock_shows_is_none() -> None:
    shard = Automatic(Retry(), checkpoint_seconds=10.0)
    shard.add(1)
    shard.step()
    shard.setting.now += 10.0 - 1e-9
    assert shard.due_in() == 0.0


def test_0_seconds_means_after_each_batch() -> None:
    shard = Automatic(Retry(), checkpoint_seconds=0)
    for n in (1, 3):
        shard.add(n, n + 1)
    shard.step_all()
    assert shard.held.places == ["2", "4"]


def test_a_failed_batch_is_never_covered_and_does_not_keep_those_before_it_waiting() -> None:
    shard = Automatic(Retry(base=100.0, cap=100.0), "3", checkpoint_seconds=5.0)
    shard.add(1, 2)
    shard.add(3, 4)
    assert shard.step() == 0.0
    assert shard.step() == 100.0
    assert shard.due_in() == 5.0
    shard.setting.now += 5.0
    assert shard.step() == 95.0
    assert shard.held.places == ["2"]
    shard.setting.now += 95.0
    assert shard.step() == 100.0
    assert shard.due_in() is None
    assert shard.held.places == ["2"]


def test_what_on_error_gives_up_is_covered_with_what_was_processed() -> None:
    shard = Automatic(Skip(), "3", checkpoint_records=2)
    shard.add(1, 2, 3, 4)
    shard.step_all()
    assert shard.held.places == ["2", "4"]
    assert ["3"] in shard.given


def test_a_retry_gets_the_records_of_the_try_before() -> None:
    shard = Automatic(Retry(base=0.0), "4", checkpoint_records=3)
    shard.add(1, 2)
    shard.add(3, 4, 5)
    shard.step()
    for _ in range(3):
        shard.step()
    assert shard.given[1:] == [["3"], ["4", "5"], ["4", "5"]]


def test_a_checkpoint_within_a_later_batch_covers_those_before_it() -> None:
    shard = Automatic(Retry(), takes=SLOW, checkpoint_records=4, checkpoint_seconds=100.0)
    shard.processor.checkpoint_at = "3"
    shard.add(1, 2)
    shard.add(3, 4)
    shard.step_all()
    assert shard.due_in() == 100.0 - SLOW, "from the beginning of the call that processed 4"
    shard.add(*range(5, 10))
    shard.step_all()
    assert shard.sizes == [2, 2, 3, 2]
    assert shard.held.places == ["3", "7"]


def test_a_sink_that_is_due_is_a_reason(tmp_path: Path) -> None:
    shard = Automatic(Retry(), checkpoint_records=1000)
    start = ExtendedSequenceNumber("TRIM_HORIZON")
    place = ProcessorShard(SHARD, "app", "s", "w", start, sinks=shard.checkpointer.sinks)
    sink = place.sink(tmp_path, pa.schema([("n", pa.int64())]), max_bytes=24)
    shard.processor.then = lambda batch, _: sink.write([{"n": n} for n in range(len(batch))])
    shard.add(1, 2)
    shard.step_all()
    assert shard.held.places == []
    shard.add(3, 4)
    shard.step_all()
    assert shard.held.places == ["4"]
    assert sink.buffered_rows == 0


@pytest.mark.parametrize("end", ["checkpoint", "drop"])
def test_a_prepared_checkpoint_is_not_removed(end: str) -> None:
    shard = Automatic(Retry(), checkpoint_records=1)
    shard.processor.then = lambda _, checkpointer: checkpointer.prepare(state=b"x")
    shard.add(1, 2)
    shard.step_all()
    shard.processor.then = lambda *_: None
    shard.add(3, 4)
    shard.step_all()
    shard.deliverer.automatic.write()
    assert shard.held.places == []
    assert shard.sizes == [1, 1, 2]
    if end == "drop":
        shard.checkpointer.drop_pending()
    else:
        shard.checkpointer.commit_pending()
    shard.add(5)
    shard.step_all()
    assert shard.held.places == {"drop": ["4", "5"], "checkpoint": ["2", "4", "5"]}[end]


def test_a_reset_forgets_what_was_counted_and_prepared() -> None:
    shard = Automatic(Retry(), checkpoint_records=4)

    def reset(_: object, checkpointer: Checkpointer) -> None:
        if len(shard.given) == 2:
            checkpointer.prepare()
            checkpointer.reset("TRIM_HORIZON")

    shard.processor.then = reset
    shard.add(1)
    shard.add(2, 3)
    shard.step()
    shard.step()
    assert shard.checkpointer.take_reset() is not None
    shard.deliverer.clear()
    shard.add(1, 2)
    shard.step_all()
    assert shard.held.places == ["TRIM_HORIZON"]
    shard.add(3, 4)
    shard.step_all()
    assert shard.held.places == ["TRIM_HORIZON", "4"]
