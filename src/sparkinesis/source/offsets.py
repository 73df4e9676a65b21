"""The offsets that Spark's checkpoint holds, and what a batch between two of them reads.

An offset is JSON: ``{"flights": {"shardId-000000000000": "4966...@1763700000000", ...}}``: for each
stream a position per shard (`sparkinesis.stream.position`). A stream that is not listed was added
to the query later; the next offset lists it, so that where it begins is durable. The shard ``*``
stands for every shard that is not listed; only the initial offset has it, and it makes that offset
a function of the options alone. That matters because Spark does not store the initial offset: after
a crash in the very first batch it asks for it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from sparkinesis.errors import OffsetError
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    ShardRange,
    between_batches,
    parse_position,
)

ANY_SHARD = "*"

Positions: TypeAlias = Mapping[str, Position]
"""Where each shard stands, by shard id."""


Offset: TypeAlias = Mapping[str, Positions]
"""Where each stream stands, by its name."""


def to_json(offset: Offset) -> dict[str, dict[str, str]]:
    """The offset as Spark stores it; all sorted, so that equal offsets are equal as text."""
    return {
        stream: {shard: str(offset[stream][shard]) for shard in sorted(offset[stream])}
        for stream in sorted(offset)
    }


def from_json(streams: Iterable[str], offset: Any) -> dict[str, dict[str, Position]]:
    """Read an offset of a query that reads ``streams``; it may lack some that were added since.

    Raises `OffsetError` naming what is wrong with it.
    """
    advice = "Start the query with the checkpoint location it was written for, or with a new one."
    if not isinstance(offset, dict) or not all(isinstance(v, dict) for v in offset.values()):
        raise OffsetError(
            f"The checkpoint holds an offset that the kinesis source did not write. {advice}"
        )
    read = set(streams)
    if not read.issuperset(offset):
        raise OffsetError(
            f"The checkpoint belongs to stream {', '.join(map(repr, sorted(offset)))}, but the "
            f"query reads {', '.join(map(repr, sorted(read)))}. {advice}"
        )
    return {stream: _positions(stream, texts, advice) for stream, texts in offset.items()}


def _positions(stream: str, texts: Mapping[str, Any], advice: str) -> dict[str, Position]:
    positions: dict[str, Position] = {}
    for shard, text in texts.items():
        try:
            positions[shard] = parse_position(text)
        except ValueError as error:
            raise OffsetError(
                f"The checkpoint's position of shard {shard} of stream {stream!r} cannot be read: "
                f"{error}. {advice}"
            ) from None
    return positions


def start_of(positions: Positions, shard_id: str) -> Position:
    """Where reading a shard begins: a shard that is not listed is new, and read from its start."""
    return positions.get(shard_id, positions.get(ANY_SHARD, TRIM_HORIZON))


def ranges(start: Positions, end: Positions) -> list[ShardRange]:
    """What the batch (start, end] reads: a pure function of its two offsets, sorted by shard.

    A shard that ``end`` no longer lists was finished in an earlier batch. Raises `OffsetError` for
    a batch that begins at LATEST, or where an application stands, and has rows: its beginning was
    another when it was planned.
    """
    found: list[ShardRange] = []
    for shard_id, until in sorted(end.items()):
        since = start_of(start, shard_id)
        initial = shard_id not in start and ANY_SHARD in start
        if _is_of_another_beginning(since, until):
            raise OffsetError(
                "The first batch of this checkpoint was planned with another initialPosition, and "
                f"is not done: it ends in shard {shard_id} at {until}, and does not begin at "
                f"{since}. Set the option initialPosition to what it was until that batch is "
                "done, or start with a new checkpoint location."
            )
        if since is SHARD_END or isinstance(since, FromApplication):
            continue  # what resolves an application's positions reads nothing, as with LATEST
        if isinstance(until, AfterRecord):
            if until.is_same_place(since):
                continue
            behind = between_batches(since)
            found.append(
                ShardRange(shard_id, behind, replace(until, first=None), initial, until.first)
            )
        elif until is SHARD_END:
            found.append(ShardRange(shard_id, between_batches(since), SHARD_END, initial))
    return found


def _is_of_another_beginning(since: Position, until: Position) -> bool:
    """Whether initialPosition was changed since this end was planned, as far as that shows.

    LATEST is resolved to an instant, and an application's place has a sub-sequence number, which
    the end of a batch has not.
    """
    if isinstance(since, FromApplication):
        return isinstance(until, AfterRecord) and until.sub_sequence_number is None
    return since is LATEST and not (until is LATEST or isinstance(until, AtTimestamp))
