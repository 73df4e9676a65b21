"""Offsets in Spark's checkpoint, and the ranges of batches that Spark plans again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkinesis.source.datasource import KinesisStreamReader
from sparkinesis.source.offsets import ANY_SHARD, Offset, from_json, ranges, to_json
from sparkinesis.source.options.checked_options import stream_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.stream.position import (
    LATEST,
    NONE_OF_IT,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    Sentinel,
)

INSTANT = 1_790_000_000_000
LATER = 1_790_000_360_000
SHARDS = [f"shardId-{number:012d}" for number in range(4)]
NUMBERS = [
    "49678550650194360514240687840139751998160151324343140354",
    "49678550650216661259439218463281287716431057440955432978",
    "49678559664021765289127377910027863492991975550399545378",
    "49678559664044066034325908533169399211264623911905525810",
]

_INITIAL = {
    "initial: latest": {"initialPosition": "latest"},
    "initial: the oldest records": {"initialPosition": "trim_horizon"},
    "initial: an instant": {"initialPosition": "2026-09-21T13:33:20Z"},
    "initial: the checkpoints of a KCL application": {"initialPosition": "application:flights-app"},
    "initial: of several streams": {"streamName": "flights,gates", "initialPosition": "latest"},
}
"""The options of queries without a checkpoint; Spark stores their initial offset with the first
batch, and may ask for the offset again."""

PLANNED: dict[str, Offset] = {
    "LATEST has become an instant": {"flights": dict.fromkeys(SHARDS[:2], AtTimestamp(INSTANT))},
    "behind records": {
        "flights": {SHARDS[0]: AfterRecord(NUMBERS[0]), SHARDS[1]: AfterRecord(NUMBERS[1])}
    },
    "behind records, and an instant before which nothing followed": {
        "flights": {
            SHARDS[0]: AfterRecord(NUMBERS[0], LATER),
            SHARDS[1]: AfterRecord(NUMBERS[1], LATER),
        }
    },
    "behind a record whose time of arrival is known": {
        "flights": {SHARDS[0]: AfterRecord(NUMBERS[0], LATER, arrived_ms=INSTANT)}
    },
    "before a record": {"flights": {SHARDS[0]: AfterRecord(NUMBERS[0], LATER, NONE_OF_IT, LATER)}},
    "inside an aggregated record": {"flights": {SHARDS[0]: AfterRecord(NUMBERS[0], None, 3)}},
    "the batch's first record, where its start names none": {
        "flights": {SHARDS[0]: AfterRecord(NUMBERS[2], LATER, None, INSTANT, NUMBERS[0])}
    },
    "a batch with every part of a position": {
        "flights": {SHARDS[0]: AfterRecord(NUMBERS[2], LATER, NONE_OF_IT, LATER, NUMBERS[0])}
    },
    "a shard has ended, and its children begin": {
        "flights": {
            SHARDS[0]: SHARD_END,
            SHARDS[1]: AfterRecord(NUMBERS[1], LATER, arrived_ms=INSTANT),
            SHARDS[2]: TRIM_HORIZON,
            SHARDS[3]: AtTimestamp(LATER),
        }
    },
    "of two streams, of which one is new": {
        "flights": {SHARDS[0]: AfterRecord(NUMBERS[0], LATER, arrived_ms=INSTANT)},
        "gates": {ANY_SHARD: TRIM_HORIZON},
    },
    "of two streams, of which one waits for its first shards": {
        "flights": {SHARDS[0]: AfterRecord(NUMBERS[0], LATER, arrived_ms=INSTANT)},
        "gates": {},
    },
}

_BEHIND: Offset = PLANNED["behind a record whose time of arrival is known"]
_ALL: Offset = {"flights": {ANY_SHARD: TRIM_HORIZON}}

BATCHES: dict[str, tuple[Offset, Offset]] = {
    "the first one resolves LATEST, and has no rows": (
        {"flights": {ANY_SHARD: LATEST}},
        PLANNED["LATEST has become an instant"],
    ),
    "the first one of an application resolves its checkpoints": (
        {"flights": {ANY_SHARD: FromApplication("flights-app")}},
        PLANNED["inside an aggregated record"],
    ),
    "from the oldest records": (_ALL, PLANNED["behind records"]),
    "from an instant": (PLANNED["LATEST has become an instant"], PLANNED["behind records"]),
    "from one record to another": (
        _BEHIND,
        {"flights": {SHARDS[0]: AfterRecord(NUMBERS[2], LATER, arrived_ms=LATER)}},
    ),
    "from inside an aggregated record": (
        PLANNED["inside an aggregated record"],
        {"flights": {SHARDS[0]: AfterRecord(NUMBERS[2], LATER, arrived_ms=LATER)}},
    ),
    "up to a record that is not part of it": (
        _BEHIND,
        {"flights": {SHARDS[0]: AfterRecord(NUMBERS[2], LATER, NONE_OF_IT, LATER)}},
    ),
    "with its first record": (
        PLANNED["LATEST has become an instant"],
        PLANNED["the batch's first record, where its start names none"],
    ),
    "a shard's end, and a child's first records": (
        _BEHIND,
        {"flights": {SHARDS[0]: SHARD_END, SHARDS[2]: AfterRecord(NUMBERS[2], LATER)}},
    ),
    "a quiet shard has no rows": (
        _BEHIND,
        {"flights": {SHARDS[0]: AfterRecord(NUMBERS[0], LATER + 1, arrived_ms=INSTANT)}},
    ),
    "of two streams": (
        PLANNED["of two streams, of which one is new"],
        {
            "flights": {SHARDS[0]: AfterRecord(NUMBERS[2], LATER, arrived_ms=LATER)},
            "gates": {SHARDS[1]: AfterRecord(NUMBERS[1], LATER, arrived_ms=LATER)},
        },
    ),
}
"""The two offsets of batches that Spark may plan again: the start, and the end."""


def write() -> dict[str, Any]:
    """Return offsets, by a name of each, as Spark stores them in a checkpoint."""
    initial = {
        name: _initial({"streamName": "flights"} | given) for name, given in _INITIAL.items()
    }
    return initial | {name: to_json(offset) for name, offset in PLANNED.items()}


def read(offset: Any) -> dict[str, Any]:
    """Return the meaning of an offset: the position of each shard of each stream."""
    return {
        stream: {shard: meaning(position) for shard, position in positions.items()}
        for stream, positions in from_json(offset, offset).items()
    }


def write_batches() -> dict[str, Any]:
    """Return the two offsets of batches, by a name of each."""
    return {
        name: {"start": to_json(start), "end": to_json(end)}
        for name, (start, end) in BATCHES.items()
    }


def read_batch(batch: Any) -> list[dict[str, Any]]:
    """Return the ranges of shards that a batch reads."""
    start, end = (from_json(batch[edge], batch[edge]) for edge in ("start", "end"))
    return [
        {
            "stream": stream,
            "shard": one.shard_id,
            "start": meaning(one.start),
            "end": meaning(one.end),
            "is_initial": one.is_initial,
            "first_record": one.first,
        }
        for stream in sorted(start)
        for one in ranges(start[stream], end[stream])
    ]


def meaning(position: Position) -> dict[str, Any]:
    """Return a position in words that do not change."""
    match position:
        case Sentinel():
            return {"sentinel": position.name}
        case AtTimestamp():
            return {"arrived_since_ms": position.ms}
        case FromApplication():
            return {"checkpoints_of": position.name}
        case AfterRecord():
            return {
                "sequence_number": position.sequence_number,
                "last_user_record": position.sub_sequence_number,
                "nothing_until_ms": position.clear_until,
                "arrived_ms": position.arrived_ms,
                "batch_begins_with": position.first,
            }


def _initial(options: Mapping[str, str]) -> dict[str, Any]:
    return KinesisStreamReader(stream_read_options(Options(dict(options)))).initialOffset()
