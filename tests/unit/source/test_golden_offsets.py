"""Offsets of version 0.1.0, which queries in the field resume from, are read as 0.1.0 read them.

The fixture was written by that version: offsets that its planner stored in queries on a local
Kinesis, the positions that it read in their texts, and the ranges that it read between them. The
fixture never changes. A later form of an offset gets a fixture of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.source.offsets import from_json, ranges
from sparkinesis.stream.position import (
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    Sentinel,
    parse_position,
)

_GOLDEN = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "offsets-0.1.0.json").read_text(encoding="utf-8")
)
POSITIONS: dict[str, dict[str, Any]] = _GOLDEN["positions"]
BATCHES: list[dict[str, Any]] = _GOLDEN["batches"]


def position(value: dict[str, Any]) -> Position:
    """The position that a value of the fixture stands for."""
    match value:
        case {"sentinel": name}:
            return Sentinel[name]
        case {"instant": ms}:
            return AtTimestamp(ms)
        case {"application": name}:
            return FromApplication(name)
        case {"after": number, **more}:
            return AfterRecord(number, more.get("clear_until"), more.get("sub"))
    raise AssertionError(value)


@pytest.mark.parametrize("text", POSITIONS)
def test_a_position_of_0_1_0_is_read_and_written_as_it_was(text: str) -> None:
    assert parse_position(text) == position(POSITIONS[text])
    assert str(parse_position(text)) == text


@pytest.mark.parametrize("batch", BATCHES, ids=[batch["what"] for batch in BATCHES])
def test_a_batch_of_0_1_0_reads_the_same_ranges(batch: dict[str, Any]) -> None:
    start = from_json(batch["start"], batch["start"])
    end = from_json(batch["end"], batch["end"])
    read = [
        (stream, one.shard_id, one.start, one.end, one.is_initial)
        for stream in sorted(start)
        for one in ranges(start[stream], end[stream])
    ]
    assert read == [
        (
            one["stream"],
            one["shard"],
            position(one["start"]),
            position(one["end"]),
            one["is_initial"],
        )
        for one in batch["ranges"]
    ]
