"""The option ``skipOlderThan``: a query that starts or resumes before a bound jumps to it.

The jump is a separate offset without rows, so the checkpoint stores it before any record is read
from there. Its shard ``*`` is the start of shards that are not listed: a child of a shard that
ended before the bound must not be read from its beginning. Pure functions; the KCL has no such
option.
"""

from __future__ import annotations

from collections.abc import Container

from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.stream.position import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)


def undecided_shards(start: Positions, bound_ms: int) -> dict[str, AfterRecord]:
    """Return the shards that may be behind the bound; only their next record decides it."""
    return {
        shard: position
        for shard, position in start.items()
        if isinstance(position, AfterRecord) and (position.clear_until or 0) < bound_ms
    }


def skip_older(
    start: Positions, bound_ms: int, behind: Container[str], *, has_closed: bool = False
) -> Positions:
    """Return ``start``, moved so that no record that arrived before ``bound_ms`` is left to read.

    Returns ``start`` itself if nothing has to be skipped. ``bound_ms``: epoch ms. ``behind``: the
    `undecided_shards` whose next record arrived before the bound, if a jump to the bound repeats
    no record. ``has_closed``: one of the `undecided_shards` is closed.
    """
    bound = AtTimestamp(bound_ms)
    moved = {
        shard: bound if _is_behind(shard, position, bound, behind) else position
        for shard, position in start.items()
    }
    # The children of a finished or closed shard may have records from before the bound.
    if moved == start and SHARD_END not in start.values() and not has_closed:
        return start
    return {**moved, ANY_SHARD: bound}


def _is_behind(shard: str, position: Position, bound: AtTimestamp, behind: Container[str]) -> bool:
    if isinstance(position, AtTimestamp):
        return position.ms < bound.ms
    return position is TRIM_HORIZON or shard in behind
