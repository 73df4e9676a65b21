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

from sparkinesis.errors import LeaseLostError, ProcessorError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.options import WorkerOptions
from tests import pace
from tests.integration.worker.scene import FIRST, ONCE, SECOND, UPPER, Gate, Scene
from tests.journal import PATIENCE, Journal, Journaling

RETRIEVALS = ("polling", "efo")
REPOSITORY = Path(__file__).parents[3]
MODULE = "tests.integration.worker.run_process"


def test_the_batch_at_hand_finishes_and_may_be_checkpointed(scene: Scene) -> None:
    """The lease is nobody's in the table by then, and `lease_lost` comes last."""
    gate = Gate()
    scene.put(b"1")
    last = scene.put(b"2")
    worker = scene.start(on_records=gate, on_shutdown=lambda c: c.checkpoint())
    gate.wait_for_work()
    scene.journal.wait(lambda: (SECOND, "initialize") in scene.journal.calls())
    worker.request_shutdown()
    # The other shard has nothing at hand, and goes first.
    scene.journal.wait(lambda: (SECOND, "lease_lost") in scene.journal.calls())
    assert not worker.wait(0)
    assert scene.calls_of() == ["initialize"]
    gate.go_on.set()
    assert worker.shutdown(PATIENCE)
    assert worker.wait(0)
    calls = ["initialize", "process_records", "shutdown_requested", "lease_lost"]
    assert scene.calls_of() == calls
    # As in the KCL: to checkpoint before anything was delivered is no error, and writes nothing.
    assert scene.calls_of(SECOND) == ["initialize", "shutdown_requested", "lease_lost"]
    assert scene.row(SECOND).checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert scene.row().checkpoint == ExtendedSequenceNumber(last)
    assert worker.shutdown(0), "again: it has ended, and well"


def test_a_processor_that_hangs_does_not_keep_its_lease(scene: Scene) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def hang(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        assert go_on.wait(PATIENCE)
        with pytest.raises(LeaseLostError, match=FIRST):
            checkpointer.checkpoint()

    scene.put(b"x")
    worker = scene.start(on_records=hang)
    assert at_work.wait(PATIENCE)
    began = time.monotonic()
    assert worker.shutdown(0.5) is False
    assert time.monotonic() - began < pace.seconds(10)
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert worker.wait(0)
    assert worker.shutdown(0) is False, "it did not end well"
    other = Journal()
    scene.start(journal=other)
    other.wait_for_data(b"x")
    go_on.set()
    scene.journal.wait(lambda: (FIRST, "lease_lost") in scene.journal.calls())
    # The call came to its end, and the lease is the other worker's as before.
    assert scene.calls_of() == ["initialize", "process_records", "lease_lost"]
    assert scene.row().checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")


def test_a_processor_asks_for_the_shutdown(scene: Scene) -> None:
    class Last(Journaling):
        def process_records(self, batch: Any, checkpointer: Checkpointer) -> None:
            super().process_records(batch, checkpointer)
            if batch.records[-1].data == b"the last":
                self.shard.request_shutdown()

    scene.put(b"one")
    last = scene.put(b"the last")
    worker = scene.start(
        processor=lambda: Last(scene.journal, on_shutdown=lambda c: c.checkpoint())
    )
    assert worker.wait(PATIENCE)
    assert scene.calls_of()[-2:] == ["shutdown_requested", "lease_lost"]
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert scene.row().checkpoint == ExtendedSequenceNumber(last)


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


@ONCE
@pytest.mark.parametrize("ending", ["request", "failure"])
def test_a_processor_that_hangs_does_not_hold_up_another_processors_shutdown(
    scene: Scene, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    go_on = threading.Event()
    ask = (lambda one: one.shard.request_shutdown()) if ending == "request" else _bad_answer
    scene.put(b"stuck")
    scene.put(b"asks", UPPER)
    processor = one_asks_while_another_hangs(scene.journal, go_on, ask)
    worker = scene.application({"shutdown_timeout": 0.5}, processor=processor).worker().start()
    with contextlib.suppress(ProcessorError):
        assert worker.wait(PATIENCE)
    assert not worker.was_graceful
    assert (worker.failure is None) == (ending == "request")
    assert scene.owners() == {FIRST: None, SECOND: None}
    warnings = [one.message for one in caplog.records if "time for the shutdown" in one.message]
    assert len(warnings) == 1
    assert f"the record processors of {FIRST} have not finished" in warnings[0]
    assert "raise shutdown_timeout" in warnings[0]
    go_on.set()


def test_the_earliest_end_of_several_requests_counts(scene: Scene) -> None:
    gate = Gate()
    scene.put(b"x")
    worker = scene.start(on_records=gate)
    gate.wait_for_work()
    worker.request_shutdown(100 * PATIENCE)
    assert not worker.wait(0)
    worker.request_shutdown(0.5)
    worker.request_shutdown(100 * PATIENCE)
    assert worker.wait(PATIENCE)
    assert not worker.was_graceful
    assert scene.owners() == {FIRST: None, SECOND: None}
    gate.go_on.set()


@ONCE
def test_a_worker_that_was_never_started_ends_at_once(scene: Scene) -> None:
    worker = scene.application().worker()
    began = time.monotonic()
    assert worker.shutdown(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2


# --- signals to a process of its own


class Program:
    """`Application.run` in a process."""

    def __init__(self, server: LocalServer, stream: str, manner: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, server.endpoint_url, stream, manner],
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


@ONCE
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_shuts_a_process_down(scene: Scene, number: signal.Signals) -> None:
    last = scene.put(b"x")
    with Program(scene.server, scene.stream, "polite") as program:
        assert program.line() == "ready"
        program.send(number)
        assert program.line() == "ended"
        assert program.wait(PATIENCE) == 0
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert scene.row().checkpoint == ExtendedSequenceNumber(last)


@ONCE
def test_a_process_ends_although_a_processor_that_did_not_ask_hangs(scene: Scene) -> None:
    scene.put(b"stuck")
    scene.put(b"last", UPPER)
    with Program(scene.server, scene.stream, "divided") as program:
        assert program.line() == "ready"
        assert program.line() == "ready"
        assert program.line() == "ended"
        assert program.wait(PATIENCE) == 0
    assert scene.owners() == {FIRST: None, SECOND: None}


@ONCE
def test_a_second_signal_forces_it(scene: Scene) -> None:
    scene.put(b"x")
    with Program(scene.server, scene.stream, "stuck") as program:
        assert program.line() == "ready"
        began = time.monotonic()
        program.send(signal.SIGTERM)
        program.send(signal.SIGINT)
        assert program.line() == "ended"
        assert program.wait(PATIENCE) == 0
        took = time.monotonic() - began
    assert took < WorkerOptions().shutdown_timeout
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert scene.row().checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")
