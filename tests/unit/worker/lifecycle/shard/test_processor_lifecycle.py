"""The last calls of a record processor, and the checkpoints that follow them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

import pytest

from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableUnavailableError,
    SparkinesisError,
)
from sparkinesis.events import CheckpointRefused, TaskFailed
from sparkinesis.metrics.tally import Tally
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.shard.processor_lifecycle import ProcessorHost, ProcessorLifecycle
from sparkinesis.worker.on_error import Retry
from sparkinesis.worker.processors.processor import RecordProcessor
from tests.unit.worker.delivering import SHARD, Shard, Told, at

Then = Callable[[Any], object]


class Ending(RecordProcessor):
    """Notes its last calls, and does in each what a test tells it."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.then: Then = lambda _: None

    def lease_lost(self) -> None:
        self.called.append("lease_lost")
        self.then(None)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        self.called.append("shard_ended")
        self.then(checkpointer)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self.called.append("shutdown_requested")
        self.then(checkpointer)


class End:
    """A shard whose record at 7 is processed and not checkpointed, and its last calls."""

    def __init__(self, **options: Any) -> None:
        self.processor = Ending()
        self.told = Told()
        self.tally = Tally()
        self.failed: list[BaseException] = []
        self.shard = Shard(
            Retry(), processor=self.processor, publish=self.told, metrics=self.tally, **options
        )
        self.shard.checkpointer.permit(at("7"))
        reporter = self.shard.setting.reporter(SHARD)
        host = ProcessorHost(
            request_shutdown=lambda: None,
            pause=lambda: None,
            resume=lambda: None,
            wake=lambda: None,
            is_ending=lambda: False,
            fail=self.failed.append,
            place_at=lambda _: None,
        )
        self.calls = ProcessorLifecycle(
            cast(Any, self.shard.held), cast(Any, self.shard.setting), reporter, host
        )
        self.calls.deliverer = self.shard.deliverer

    @property
    def written(self) -> list[str]:
        return self.shard.held.written

    @property
    def sinks_are_closed(self) -> bool:
        return self.shard.checkpointer.sinks.is_closed


def fail(error: BaseException) -> Then:
    def raise_it(_: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize("is_automatic", [False, True])
def test_before_a_lease_is_released_the_processor_is_asked_and_then_checkpointed(
    *, is_automatic: bool
) -> None:
    end = End(checkpoint_seconds=9.0 if is_automatic else None)
    seen: list[list[str]] = []
    end.processor.then = lambda _: seen.append(list(end.written))
    end.calls.shutdown_requested()
    assert end.processor.called == ["shutdown_requested"]
    assert seen == [[]]
    assert end.written == (["7:0"] if is_automatic else [])
    assert end.told.events == []
    assert [one.metric for one in end.tally.series()] == ["shutdown.duration"]


def test_a_last_checkpoint_that_is_refused_is_told_as_what_it_is() -> None:
    end = End(checkpoint_seconds=9.0)
    for error, kind, failures in (
        (LeaseLostError("another has it"), CheckpointRefused, 0),
        (LeaseTableUnavailableError("away"), TaskFailed, 1),
    ):
        end.told.events.clear()
        with patch.object(end.shard.held, "checkpoint", side_effect=error):
            end.calls.checkpoint()
        (event,) = end.told.events
        assert isinstance(event, kind)
        assert len(end.shard.setting.failures.snapshot()) == failures


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_who_has_lost_its_lease_is_told_once_and_writes_no_row_more(
    error: Exception | None,
) -> None:
    end = End()
    if error is not None:
        end.processor.then = fail(error)
    end.calls.lease_lost()
    assert end.processor.called == ["lease_lost"]
    assert end.sinks_are_closed
    assert len(end.told.events) == int(error is not None)


def test_a_shard_ends_with_a_checkpoint_of_its_processor() -> None:
    end = End()
    was_called = [end.calls.shard_ended_was_called]
    for n in range(2):
        with pytest.raises(SparkinesisError, match="shard_ended returned without a checkpoint"):
            end.calls.shard_ended()
        was_called.append(end.calls.shard_ended_was_called)
        assert end.processor.called == ["shard_ended"] * (n + 1), "it is called again"
        assert not end.sinks_are_closed
    assert was_called == [False, True, True]
    end.processor.then = lambda checkpointer: checkpointer.checkpoint()
    end.calls.shard_ended()
    assert end.written == ["SHARD_END"]
    assert end.sinks_are_closed
    end.calls.shard_ended()
    assert end.processor.called == ["shard_ended"] * 3, "what has ended is not ended again"
    assert end.written == ["SHARD_END"]
