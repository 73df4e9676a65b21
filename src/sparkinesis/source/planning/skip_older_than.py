"""``skipOlderThan``: a query that starts, or resumes, behind a bound goes on at the bound.

The jump is an offset of its own, without rows, so it is in the checkpoint before anything is read
from there. The shard ``*`` in it is where shards begin that are not listed: a child of a shard that
ended before the bound must not be read from its start. Pure functions; no KCL has this.
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
    """The shards of which only the next record tells whether they are behind the bound."""
    return {
        shard: position
        for shard, position in start.items()
        if isinstance(position, AfterRecord) and (position.clear_until or 0) < bound_ms
    }


def skip_older(
    start: Positions, bound_ms: int, behind: Container[str], *, has_closed: bool = False
) -> Positions:
    """``start``, with nothing that arrived before ``bound_ms`` (epoch ms) left to read.

    ``behind``: which of the `undecided_shards` have a record to come that arrived before the bound,
    and none behind them that arrived later.
    ``has_closed``: one of the `undecided_shards` is closed. ``start`` itself when there is nothing
    to skip.
    """
    bound = AtTimestamp(bound_ms)
    moved = {
        shard: bound if _is_behind(shard, position, bound, behind) else position
        for shard, position in start.items()
    }
    # The children of a finished shard, or of one that turns out to be, may have been there before
    # the bound.
    if moved == start and SHARD_END not in start.values() and not has_closed:
        return start
    return {**moved, ANY_SHARD: bound}


def _is_behind(shard: str, position: Position, bound: AtTimestamp, behind: Container[str]) -> bool:
    if isinstance(position, AtTimestamp):
        return position.ms < bound.ms
    return position is TRIM_HORIZON or shard in behind
