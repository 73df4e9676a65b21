"""The option ``skipOlderThan``: a query that starts or resumes before a bound jumps to it.

The jump is a separate offset without rows, so the checkpoint stores it before any record is read
from there. Its shard ``*`` is the start of shards that are not listed: a child of a shard that
ended before the bound must not be read from its beginning. The KCL has no such option.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from datetime import datetime, timezone
from functools import partial

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.batch_end import missing, without_missing
from sparkinesis.source.planning.shard_listing import ListedShards
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    sequence_order,
)
from sparkinesis.stream.reading.retention import holds_more
from sparkinesis.stream.reading.shard_cursor import ShardCursor

_log = logging.getLogger(__name__)


def skip_older(
    stream: StreamTools,
    listing: ListedShards,
    start: Positions,
    seconds: float,
    created_ms: int,
) -> Positions:
    """Return ``start``, moved to the bound where it lies before the bound; or ``start`` itself.

    ``created_ms``: the stream's creation time in epoch ms; 0 if it is not known.
    """
    now_ms = listing.renew_now()
    listing.renew_until_complete(partial(missing, start))
    lineage = listing.lineage
    bound_ms = now_ms - round(seconds * 1000)
    if created_ms > bound_ms:
        return start  # the stream is younger than the bound
    if bound_ms == now_ms:
        # The probes ask for the bound. The service refuses instants in its future, and its clock
        # is known only to the second.
        stream.timing.sleep(1.0)
    # The records of a missing shard are older than the bound, so they are no loss. Unrelated
    # shards, of a stream that was created anew a moment later, begin at the bound as well.
    kept = start if set(start) == {ANY_SHARD} else without_missing(start, lineage)
    # Only the next record decides whether these shards are behind the bound.
    doubtful = {
        shard: position
        for shard, position in kept.items()
        if isinstance(position, AfterRecord) and (position.clear_until or 0) < bound_ms
    }
    behind = stream.threads.those(
        doubtful, lambda shard: _next_record_is_older(stream, shard, doubtful[shard], bound_ms)
    )
    has_closed = any(not lineage.shards[shard].is_open for shard in doubtful)
    skipped = moved_to(bound_ms, kept, behind, has_closed=has_closed)
    if skipped == start:
        return start
    _log.warning(
        "%s: records that arrived before %s are skipped because of skipOlderThan.",
        stream.client.address,
        datetime.fromtimestamp(bound_ms / 1000, timezone.utc).isoformat(),
    )
    return skipped


def moved_to(
    bound_ms: int, start: Positions, behind: Container[str], *, has_closed: bool
) -> Positions:
    """Return ``start``, moved so that no record that arrived before ``bound_ms`` is left to read.

    ``bound_ms``: epoch ms. ``behind``: the shards at a record whose next record arrived before the
    bound, if a jump to the bound repeats no record. ``has_closed``: a shard that may be behind is
    closed.
    """
    bound = AtTimestamp(bound_ms)

    def is_behind(shard: str, position: Position) -> bool:
        if isinstance(position, AtTimestamp):
            return position.ms < bound_ms
        return position is TRIM_HORIZON or shard in behind

    moved = {
        shard: bound if is_behind(shard, position) else position
        for shard, position in start.items()
    }
    # The children of a finished or closed shard may have records from before the bound.
    if moved == start and SHARD_END not in start.values() and not has_closed:
        return start
    return {**moved, ANY_SHARD: bound}


def _next_record_is_older(
    stream: StreamTools, shard_id: str, position: AfterRecord, bound_ms: int
) -> bool:
    """Return True if the record after ``position`` arrived before ``bound_ms`` (epoch ms).

    Reads a page or two. Also True if the position's own record is no longer kept. False if the
    first record that arrived at the bound does not follow the position: arrival times are out of
    order there, and a jump to the bound would read records twice.
    """
    cursor = partial(ShardCursor, stream.client, stream.budget(), shard_id)
    try:
        seen = _first(cursor(position, inclusive=True), 2)
        if not seen or seen[0].sequence_number != position.sequence_number:
            return True
        left = seen if holds_more(seen[0], position) else seen[1:]
        if not any((record.arrived_ms or 0) < bound_ms for record in left):
            return False
        at_bound = _first(cursor(AtTimestamp(bound_ms)), 1)
    except (PositionNotFoundError, ShardNotFoundError):
        return True
    place = sequence_order(position.sequence_number)
    return not at_bound or sequence_order(at_bound[0].sequence_number) > place


def _first(cursor: ShardCursor, count: int) -> list[Record]:
    """Return the cursor's first ``count`` records; fewer if it reaches the tip or the end."""
    seen: list[Record] = []
    while len(seen) < count and not cursor.at_end:
        page = cursor.fetch(count).page
        seen += page.records
        if not page.millis_behind_latest:
            break
    return seen
