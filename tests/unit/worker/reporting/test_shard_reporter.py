"""The events of a shard, its failures among them: which are repetitions, and what is counted."""

from __future__ import annotations

import pytest

from sparkinesis.errors import LeaseLostError
from sparkinesis.events import BatchAction, BatchFailed, DataLost, Span
from sparkinesis.worker.reporting.event_log import WorkerEvents
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.reporting.shard_reporter import ShardPlace, ShardReporter
from tests.unit.worker.delivering import Told

TEN = Span(10, "1:0", "9:0")


def at(shard: str) -> ShardPlace:
    return ShardPlace(shard, shard, "s", f"shard {shard}")


def test_a_repeated_error_is_logged_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever its message, on whichever shard; other lines of code, other failures."""
    failures, publish = Failures(), WorkerEvents(LogPlace("app", "w"), "s")
    here, there = (ShardReporter(at(shard), failures, publish) for shard in ("here", "there"))
    for text in ("a", "a", "b"):
        here.task_failed("what", ValueError(text))
    there.task_failed("what", ValueError("c"))
    here.forget_failure()
    here.task_failed("what", ValueError("d"))
    here.task_failed("what", KeyError("e"))
    here.batch_failed(TEN, BatchAction.RETRY, ValueError("f"))
    traced = [bool(record.exc_info) for record in caplog.records]
    assert traced == [True, False, False, False, False, True, False]
    again = [record.levelname for record in caplog.records if ", again: " in record.message]
    assert again == ["WARNING"] * 2
    values = {failure.fingerprint for failure in failures.snapshot()}
    for record in caplog.records:
        assert any(record.message.endswith(f"[failure {value}]") for value in values)


def test_a_batch_that_fails_because_the_lease_is_gone_is_no_failure() -> None:
    failures, told = Failures(), Told()
    shard = ShardReporter(at("s0"), failures, told)
    shard.batch_failed(TEN, BatchAction.RELEASE, LeaseLostError("gone"))
    shard.batch_failed(TEN, BatchAction.RELEASE, ValueError("x"))
    shard.batch_failed(TEN, BatchAction.WAIT, LeaseLostError("of another shard, perhaps"))
    found = [
        one.failure and one.failure.count for one in told.events if isinstance(one, BatchFailed)
    ]
    assert found == [None, 1, 1]
    assert [cause is not None for cause in told.causes] == [False, True, True]
    assert len(failures.snapshot()) == 2


def test_a_loss_is_a_failure_and_an_event() -> None:
    failures, told = Failures(), Told()
    ShardReporter(at("s0"), failures, told).lost("All is lost.")
    assert told.events == [DataLost("s0", "s0", "s", "shard s0", "All is lost.")]
    (failure,) = failures.snapshot()
    assert failure.error == "DataLossError: All is lost."
    assert failure.what == "Records expired before they were read, on shard s0"
