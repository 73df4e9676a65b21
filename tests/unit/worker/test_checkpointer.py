"""Which checkpoints are permitted (W2): within what was delivered, never backwards."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkinesis.errors import CheckpointError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease
from sparkinesis.worker.checkpointer import Checkpointer, Permitted


def at(text: str) -> ExtendedSequenceNumber:
    sequence_number, _, sub = text.partition(":")
    return ExtendedSequenceNumber(sequence_number, int(sub or 0))


@pytest.mark.parametrize(
    ("last", "largest", "asked", "written"),
    [
        ("TRIM_HORIZON", "20:3", (None, None), "20:3"),
        ("TRIM_HORIZON", "20:3", ("20", 1), "20:1"),
        ("TRIM_HORIZON", "20:3", ("20", None), "20:0"),
        ("LATEST", "20:3", ("9", None), "9:0"),
        ("20:1", "20:3", ("20", 1), "20:1"),
        ("20:1", "20:3", ("20", 2), "20:2"),
        ("9", "10", ("10", None), "10:0"),
        ("TRIM_HORIZON", "TRIM_HORIZON", (None, None), "TRIM_HORIZON"),
    ],
)
def test_a_checkpoint_within_what_was_delivered(
    last: str, largest: str, asked: tuple[str | None, int | None], written: str
) -> None:
    assert Permitted(at(last), at(largest)).resolve(*asked) == at(written)


@pytest.mark.parametrize(
    ("last", "largest", "asked", "why"),
    [
        ("20:1", "20:3", ("20", 0), "before the last checkpoint"),
        ("20:1", "20:3", ("9", 7), "before the last checkpoint"),
        ("20:1", "20:3", ("20", 4), "beyond the last record that was processed"),
        ("20:1", "20:3", ("100", None), "beyond the last record that was processed"),
        ("TRIM_HORIZON", "TRIM_HORIZON", ("5", None), "beyond the last record that was processed"),
        ("20:1", "20:3", ("LATEST", None), "checkpointer.reset"),
        ("20:1", "20:3", ("TRIM_HORIZON", None), "checkpointer.reset"),
        ("20:1", "20:3", ("SHARD_END", None), "beyond the last record that was processed"),
        ("20:1", "20:3", ("2x", None), "not a sequence number"),
        ("20:1", "20:3", ("²", None), "not a sequence number"),
        ("20:1", "20:3", ("", None), "not a sequence number"),
        ("20:1", "20:3", ("20", -1), "negative"),
        ("20:1", "20:3", (None, 2), "without a sequence number"),
    ],
)
def test_any_other_is_refused_with_the_reason(
    last: str, largest: str, asked: tuple[str | None, int | None], why: str
) -> None:
    with pytest.raises(CheckpointError, match=why):
        Permitted(at(last), at(largest)).resolve(*asked)


@pytest.mark.parametrize("asked", [(None, None), ("20", 3), ("SHARD_END", None)])
@pytest.mark.parametrize("last", ["TRIM_HORIZON", "20:1", "20:3"])
def test_the_last_record_of_an_ended_shard_is_its_end_even_if_it_was_checkpointed_before(
    last: str, asked: tuple[str | None, int | None]
) -> None:
    """The KCL compares first, writes nothing, and calls ``shardEnded`` for ever."""
    ended = Permitted(at(last), at("SHARD_END"), end=at("20:3"))
    assert ended.resolve(*asked).is_shard_end


def test_an_earlier_record_of_an_ended_shard_is_itself() -> None:
    ended = Permitted(at("TRIM_HORIZON"), at("SHARD_END"), end=at("20:3"))
    assert ended.resolve("20", 2) == at("20:2")


class Held:
    """A lease at its start, which takes every checkpoint."""

    lease = Lease("s", "s", at("TRIM_HORIZON"))

    def checkpoint(self, place: Any, timestamp_ms: int | None = None, **more: Any) -> None:
        """It is written."""


@pytest.fixture
def checkpointer() -> Checkpointer:
    return Checkpointer(cast(HeldLease, Held()), lambda: 1_790_000_000_000)


def test_a_checkpoint_is_settled_once_nothing_that_was_delivered_lies_behind_it(
    checkpointer: Checkpointer,
) -> None:
    """Silence behind it may be noted then: of an aggregate, all user records are done."""
    settled = [checkpointer.settled]
    checkpointer.deliver(at("20:3"))
    settled.append(checkpointer.settled)
    checkpointer.checkpoint("20", 1)  # two more user records of the same record are left
    settled.append(checkpointer.settled)
    checkpointer.checkpoint("20", 3)
    settled.append(checkpointer.settled)
    assert settled == [at("TRIM_HORIZON"), None, None, at("20:3")]


@pytest.mark.parametrize("text", ["latest", "LATEST", "trim_horizon", "TRIM_HORIZON"])
def test_a_shard_is_moved_to_a_position_in_any_case(checkpointer: Checkpointer, text: str) -> None:
    checkpointer.reset(text)
    assert str(checkpointer.last) == text.upper()


def test_nothing_is_settled_while_a_shard_is_moved_or_has_ended(
    checkpointer: Checkpointer,
) -> None:
    checkpointer.reset("TRIM_HORIZON")
    settled = [checkpointer.settled]
    assert checkpointer.take_reset() is not None
    settled.append(checkpointer.settled)
    checkpointer.end()
    settled.append(checkpointer.settled)
    assert settled == [None, at("TRIM_HORIZON"), None]
