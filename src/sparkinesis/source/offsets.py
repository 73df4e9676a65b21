"""The offsets in Spark's checkpoint, and the shard ranges that a batch between two of them reads.

An offset is JSON: ``{"flights": {"shardId-000000000000": "4966...@1763700000000", ...}}``: a
position (`sparkinesis.stream.position`) for each shard of each stream. A stream that is not listed
was added to the query later; the next offset lists it, which makes its start durable. The shard
``*`` stands for every shard that is not listed. It makes the initial offset a function of the
options alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from sparkinesis.errors import OffsetError
from sparkinesis.stream.address import shown
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

# What an offset has to say by itself
#
# A batch is a pure function of its two offsets: Spark repeats it after a crash, perhaps days later,
# with another planner, and then its rows must be the same or the loss must be reported. Kinesis has
# no call that returns the latest sequence number, so the planner finds a record that exists before
# the batch starts, and the offset names it. The parts of a position:
#
# - `@`, the instant before which nothing followed. Without it a quiet shard whose last record was
#   trimmed is taken for lost data (111aa900);
# - `~`, when the record itself arrived. A record that is gone although the present retention period
#   would keep it shows that the period was shorter meanwhile (3d29448e);
# - `^`, the first record that the plan saw, where the start names none. A shard that the start does
#   not list was read from TRIM_HORIZON, and what expired between the plan and its repetition was
#   gone without a word (3d29448e);
# - `:-1`, before a record. Where the plan knows only the first record that arrived too late, the
#   batch ends before that one (dc1442ea).
#
# An offset stays small: a shard at SHARD_END stays until its children are listed, and gives way to
# them. It must not go earlier, as a plan reaches the children from their parent. And a batch with
# the last records of a shard does not end at SHARD_END, which has no time: it ends behind the last
# record, and the next plan finds the shard finished (90f04bdf; see `batch_end`).
#
# `KnownOffsets` is for speed alone, but others rely on the identity of its objects: see `kept`.

ANY_SHARD = "*"

Positions: TypeAlias = Mapping[str, Position]
"""The position of each shard, by shard id."""


Offset: TypeAlias = Mapping[str, Positions]
"""The positions of each stream, by its name."""


def to_json(offset: Offset) -> dict[str, dict[str, str]]:
    """Return the offset as Spark stores it, sorted, so that equal offsets are equal as text."""
    return {
        stream: {shard: str(offset[stream][shard]) for shard in sorted(offset[stream])}
        for stream in sorted(offset)
    }


def from_json(
    streams: Iterable[str], offset: Any, *, drops_removed: bool = False
) -> dict[str, dict[str, Position]]:
    """Read an offset of a query that reads ``streams``; streams added since may be missing.

    drops_removed: streams of the offset that the query no longer reads are permitted, and returned.
    Raises `OffsetError`, which names the mistake.
    """
    advice = "Start the query with its own checkpoint location, or with a new one."
    if not isinstance(offset, dict) or not all(isinstance(v, dict) for v in offset.values()):
        raise OffsetError(
            f"The offset in the checkpoint was not written by the kinesis source. {advice}"
        )
    read = set(streams)
    removed = set(offset) - read
    if removed and read.isdisjoint(offset):
        raise OffsetError(
            f"The checkpoint belongs to stream {_listed(offset)}, but the query reads "
            f"{_listed(read)}. {advice}"
        )
    if removed and not drops_removed:
        raise OffsetError(
            f"The checkpoint holds stream {_listed(removed)}, which the query does not read: it "
            f"reads {_listed(read)}. To go on without {_listed(removed)}, set the option "
            "removedStreams=drop: its unread records are not delivered. Otherwise name it in the "
            "option streamName (streamARN) again."
        )
    return {stream: _positions(stream, texts, advice) for stream, texts in offset.items()}


class KnownOffsets:
    """Reads and writes the offsets of a query, and remembers the last two: a batch's two ends.

    Spark hands each offset back as text. A known offset is not parsed again, and comes back as the
    same object, so that a planner sees at once that nothing has changed. Owned by one thread.
    """

    def __init__(self, streams: Iterable[str], *, drops_removed: bool = False) -> None:
        """``streams`` and ``drops_removed``: as for `from_json`."""
        self._streams = frozenset(streams)
        self._drops_removed = drops_removed
        self._known: list[tuple[dict[str, dict[str, str]], Offset]] = []

    def read(self, texts: Any) -> Offset:
        """Return the offset of its JSON. Raises `OffsetError`, which names the mistake."""
        for known, offset in self._known:
            if known == texts:
                return offset
        offset = from_json(self._streams, texts, drops_removed=self._drops_removed)
        self._remember(texts, offset)
        return offset

    def write(self, offset: Offset) -> dict[str, dict[str, str]]:
        """Return the offset as Spark stores it: see `to_json`."""
        for known, written in self._known:
            if written is offset:
                return known
        texts = to_json(offset)
        self._remember(texts, offset)
        return texts

    def _remember(self, texts: dict[str, dict[str, str]], offset: Offset) -> None:
        self._known = [(texts, offset), *self._known[:1]]


def _listed(streams: Iterable[str]) -> str:
    return ", ".join(map(shown, sorted(streams)))


def _positions(stream: str, texts: Mapping[str, Any], advice: str) -> dict[str, Position]:
    positions: dict[str, Position] = {}
    for shard, text in texts.items():
        try:
            positions[shard] = parse_position(text)
        except ValueError as error:
            raise OffsetError(
                f"The checkpoint's position in shard {shard} of stream {stream!r} is not valid: "
                f"{error}. {advice}"
            ) from None
    return positions


def start_of(positions: Positions, shard_id: str) -> Position:
    """Return the start of a shard; an unlisted shard is new, and read from its beginning."""
    return positions.get(shard_id, positions.get(ANY_SHARD, TRIM_HORIZON))


def ranges(start: Positions, end: Positions) -> list[ShardRange]:
    """Return the ranges that the batch (start, end] reads, sorted by shard. A pure function.

    A shard that ``end`` no longer lists was finished in an earlier batch. Raises `OffsetError` for
    a batch with rows that begins at LATEST or at an application's checkpoints: it was planned with
    another start.
    """
    found: list[ShardRange] = []
    for shard_id, until in sorted(end.items()):
        since = start_of(start, shard_id)
        initial = shard_id not in start and ANY_SHARD in start
        if _has_other_initial_position(since, until):
            raise OffsetError(
                "The option initialPosition was changed before the first batch of this checkpoint "
                f"was finished: the batch ends in shard {shard_id} at {until}, and cannot begin at "
                f"{since}. Restore the former initialPosition until that batch is finished, or "
                "start with a new checkpoint location."
            )
        if since is SHARD_END or isinstance(since, FromApplication):
            continue  # the batch that resolves LATEST or an application has no rows
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


def _has_other_initial_position(since: Position, until: Position) -> bool:
    """Return True if initialPosition is known to have changed since this end was planned.

    LATEST is resolved to an instant. An application's checkpoint names a user record; the end of a
    batch lies between two records.
    """
    if isinstance(since, FromApplication):
        return isinstance(until, AfterRecord) and (
            until.sub_sequence_number is None or until.is_before
        )
    return since is LATEST and not (until is LATEST or isinstance(until, AtTimestamp))
