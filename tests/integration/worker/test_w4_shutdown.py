"""W4: a graceful shutdown finishes what is at hand, lets processors checkpoint, and releases."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import LeaseLostError, ProcessorError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import LocalServer
from sparkinesis.status import ShardState
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.options import WorkerOptions
from tests import pace
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put_at

RETRIEVALS = ("polling", "efo")

Start = Callable[[Application], Worker]
Make = Callable[..., Application]

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
UPPER = 2**127
REPOSITORY = Path(__file__).parents[3]


def owners(application: Make) -> dict[str, str | None]:
    """The table's word."""
    return {row.key: row.owner for row in application().table().leases()}


def checkpoint_of(application: Make, shard: str = FIRST) -> ExtendedSequenceNumber:
    row = application().table().get(shard)
    assert row is not None
    return row.checkpoint


def calls_of(journal: Journal, shard: str = FIRST) -> list[str]:
    return [call for where, call in journal.calls() if where == shard]


def test_the_batch_at_hand_finishes_and_may_be_checkpointed(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """The lease is nobody's in the table by then, and `lease_lost` comes last."""
    at_work, go_on = threading.Event(), threading.Event()

    def work(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        assert go_on.wait(PATIENCE)

    put_at(kinesis, stream, b"1")
    last = put_at(kinesis, stream, b"2")
    worker = start(
        application(
            processor=lambda: Journaling(
                journal, on_records=work, on_shutdown=lambda c: c.checkpoint()
            )
        )
    )
    assert at_work.wait(PATIENCE)
    journal.wait(lambda: (SECOND, "initialize") in journal.calls())
    worker.request_shutdown()
    # The other shard has nothing at hand, and goes first.
    journal.wait(lambda: (SECOND, "lease_lost") in journal.calls())
    assert not worker.wait(0)
    assert calls_of(journal) == ["initialize"]
    go_on.set()
    assert worker.shutdown(PATIENCE)
    assert worker.wait(0)
    assert calls_of(journal) == [
        "initialize",
        "process_records",
        "shutdown_requested",
        "lease_lost",
    ]
    assert owners(application) == {FIRST: None, SECOND: None}
    assert checkpoint_of(application) == ExtendedSequenceNumber(last)
    assert worker.shutdown(0), "again: it has ended, and well"


def test_another_worker_takes_over_before_a_lease_would_expire(
    application: Make, start: Start, kinesis: Any, stream: str
) -> None:
    """How soon exactly: `tests/simulation/test_takeover.py`."""
    failover_time = pace.seconds(10.0)
    options = {"failover_time": failover_time}
    journals = {"a": Journal(), "b": Journal()}
    times: dict[tuple[str, str, str], float] = {}

    class Timed(Journaling):
        def initialize(self, shard: Any) -> None:
            times[shard.worker_id, shard.id, "initialize"] = time.monotonic()
            super().initialize(shard)

        def shutdown_requested(self, checkpointer: Checkpointer) -> None:
            times[self.shard.worker_id, self.shard.id, "letting go"] = time.monotonic()
            super().shutdown_requested(checkpointer)

    def run(name: str) -> Worker:
        return start(
            application(worker_id=name, processor=lambda: Timed(journals[name]), options=options)
        )

    a = run("a")
    journals["a"].wait(lambda: len(journals["a"].calls("initialize")) == 2)
    run("b")
    # They share: one of the two shards moves.
    journals["b"].wait(lambda: len(journals["b"].calls("initialize")) == 1)
    (moved,) = {shard for shard, _ in journals["b"].calls("initialize")}
    (left,) = {FIRST, SECOND} - {moved}
    assert a.shutdown(PATIENCE)
    journals["b"].wait(lambda: (left, "initialize") in journals["b"].calls())
    took = times["b", left, "initialize"] - times["a", left, "letting go"]
    assert took < failover_time - WorkerOptions(failover_time=failover_time).renew_interval


def test_a_shard_that_waits_for_its_parents_hears_nothing(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """A merge, of which one parent has ended and the other is being processed."""
    at_work, go_on = threading.Event(), threading.Event()

    def work(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        assert go_on.wait(PATIENCE)

    put_at(kinesis, stream, b"slow", UPPER)
    worker = start(application(processor=lambda: Journaling(journal, on_records=work)))
    assert at_work.wait(PATIENCE)
    kinesis.merge_shards(StreamName=stream, ShardToMerge=FIRST, AdjacentShardToMerge=SECOND)
    child = "shardId-000000000002"

    def is_waiting() -> bool:
        return (child, ShardState.WAITING_ON_PARENT_SHARDS) in {
            (status.shard_id, status.state) for status in worker.status()
        }

    with worker._state.changed:
        assert worker._state.changed.wait_for(is_waiting, PATIENCE)
    worker.request_shutdown()
    with worker._state.changed:
        assert worker._state.changed.wait_for(lambda: len(worker.status()) == 1, PATIENCE)
    go_on.set()
    assert worker.shutdown(PATIENCE)
    assert calls_of(journal, child) == []
    assert calls_of(journal, SECOND)[-2:] == ["shutdown_requested", "lease_lost"]
    assert owners(application) == {FIRST: None, SECOND: None, child: None}
    assert checkpoint_of(application, SECOND) == ExtendedSequenceNumber("TRIM_HORIZON")


def test_a_processor_that_hangs_does_not_keep_its_lease(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def hang(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        assert go_on.wait(PATIENCE)
        with pytest.raises(LeaseLostError, match=FIRST):
            checkpointer.checkpoint()

    put_at(kinesis, stream, b"x")
    worker = start(application(processor=lambda: Journaling(journal, on_records=hang)))
    assert at_work.wait(PATIENCE)
    began = time.monotonic()
    assert worker.shutdown(0.5) is False
    assert time.monotonic() - began < pace.seconds(10)
    assert owners(application) == {FIRST: None, SECOND: None}
    assert worker.wait(0)
    assert worker.shutdown(0) is False, "it did not end well"
    other = Journal()
    start(application(processor=lambda: Journaling(other)))
    other.wait_for_data(b"x")
    go_on.set()
    journal.wait(lambda: (FIRST, "lease_lost") in journal.calls())
    # The call came to its end, and the lease is the other worker's as before.
    assert calls_of(journal) == ["initialize", "process_records", "lease_lost"]
    assert checkpoint_of(application) == ExtendedSequenceNumber("TRIM_HORIZON")


def test_a_processor_asks_for_the_shutdown(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    class Last(Journaling):
        def process_records(self, batch: Any, checkpointer: Checkpointer) -> None:
            super().process_records(batch, checkpointer)
            if batch.records[-1].data == b"the last":
                self.shard.request_shutdown()

    put_at(kinesis, stream, b"one")
    last = put_at(kinesis, stream, b"the last")
    worker = start(
        application(processor=lambda: Last(journal, on_shutdown=lambda c: c.checkpoint()))
    )
    assert worker.wait(PATIENCE)
    assert calls_of(journal)[-2:] == ["shutdown_requested", "lease_lost"]
    assert owners(application) == {FIRST: None, SECOND: None}
    assert checkpoint_of(application) == ExtendedSequenceNumber(last)


def one_asks_while_another_hangs(
    journal: Journal, go_on: threading.Event, ask: Callable[[Journaling], Any]
) -> Callable[[], Journaling]:
    """The first shard hangs; once it does, the second one calls ``ask``."""
    is_stuck = threading.Event()

    class Processor(Journaling):
        def process_records(self, batch: Any, checkpointer: Any) -> Any:
            super().process_records(batch, checkpointer)
            if self.shard.id == FIRST:
                is_stuck.set()
                go_on.wait()
                return None
            assert is_stuck.wait(PATIENCE)
            return ask(self)

    return lambda: Processor(journal)


async def _too_late() -> None: ...


def _bad_answer(_: Journaling) -> Any:
    answer = _too_late()
    answer.close()
    return answer


@pytest.mark.parametrize("ending", ["request", "failure"])
def test_a_processor_that_hangs_does_not_hold_up_another_processors_shutdown(
    application: Make,
    kinesis: Any,
    stream: str,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
    *,
    ending: str,
) -> None:
    go_on = threading.Event()
    ask = (lambda one: one.shard.request_shutdown()) if ending == "request" else _bad_answer
    put_at(kinesis, stream, b"stuck")
    put_at(kinesis, stream, b"asks", UPPER)
    processor = one_asks_while_another_hangs(journal, go_on, ask)
    worker = application(processor=processor, options={"shutdown_timeout": 0.5}).worker().start()
    with contextlib.suppress(ProcessorError):
        assert worker.wait(PATIENCE)
    assert not worker.was_graceful
    assert (worker.failure is None) == (ending == "request")
    assert owners(application) == {FIRST: None, SECOND: None}
    warnings = [one.message for one in caplog.records if "time for the shutdown" in one.message]
    assert len(warnings) == 1
    assert f"the record processors of {FIRST} have not finished" in warnings[0]
    assert "raise shutdown_timeout" in warnings[0]
    go_on.set()


def test_the_earliest_end_of_several_requests_counts(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def hang(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        go_on.wait()

    put_at(kinesis, stream, b"x")
    worker = start(application(processor=lambda: Journaling(journal, on_records=hang)))
    assert at_work.wait(PATIENCE)
    worker.request_shutdown(100 * PATIENCE)
    assert not worker.wait(0)
    worker.request_shutdown(0.5)
    worker.request_shutdown(100 * PATIENCE)
    assert worker.wait(PATIENCE)
    assert not worker.was_graceful
    assert owners(application) == {FIRST: None, SECOND: None}
    go_on.set()


def test_a_worker_that_was_never_started_ends_at_once(application: Make) -> None:
    worker = application().worker()
    began = time.monotonic()
    assert worker.shutdown(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2


# --- signals to a process of its own


class Program:
    """`Application.run` in a process."""

    def __init__(self, server: LocalServer, stream: str, manner: str) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integration.worker.run_process",
                server.endpoint_url,
                stream,
                manner,
            ],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_shuts_a_process_down(
    application: Make,
    server: LocalServer,
    kinesis: Any,
    stream: str,
    *,
    number: signal.Signals,
) -> None:
    last = put_at(kinesis, stream, b"x")
    with Program(server, stream, "polite") as program:
        assert program.line() == "ready"
        program.send(number)
        assert program.line() == "ended"
        assert program.wait(PATIENCE) == 0
    assert owners(application) == {FIRST: None, SECOND: None}
    assert checkpoint_of(application) == ExtendedSequenceNumber(last)


def test_a_process_ends_although_a_processor_that_did_not_ask_hangs(
    application: Make, server: LocalServer, kinesis: Any, stream: str
) -> None:
    put_at(kinesis, stream, b"stuck")
    put_at(kinesis, stream, b"last", UPPER)
    with Program(server, stream, "divided") as program:
        assert program.line() == "ready"
        assert program.line() == "ready"
        assert program.line() == "ended"
        assert program.wait(PATIENCE) == 0
    assert owners(application) == {FIRST: None, SECOND: None}


def test_a_second_signal_forces_it(
    application: Make, server: LocalServer, kinesis: Any, stream: str
) -> None:
    put_at(kinesis, stream, b"x")
    with Program(server, stream, "stuck") as program:
        assert program.line() == "ready"
        began = time.monotonic()
        program.send(signal.SIGTERM)
        program.send(signal.SIGINT)
        assert program.line() == "ended"
        assert program.wait(PATIENCE) == 0
        took = time.monotonic() - began
    assert took < WorkerOptions().shutdown_timeout
    assert owners(application) == {FIRST: None, SECOND: None}
    assert checkpoint_of(application) == ExtendedSequenceNumber("TRIM_HORIZON")


def test_signal_handlers_are_put_back(application: Make) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with graceful_on_signals(application().worker()):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
