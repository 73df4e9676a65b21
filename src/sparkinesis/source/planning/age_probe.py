"""Compares a shard's next record with the bound of ``skipOlderThan``, by a page or two."""

from __future__ import annotations

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import AfterRecord, AtTimestamp, sequence_order
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.retention import holds_more


def next_record_is_older(
    client: StreamClient,
    budget: ShardBudget,
    shard_id: str,
    position: AfterRecord,
    bound_ms: int,
) -> bool:
    """Return True if the record after ``position`` arrived before ``bound_ms`` (epoch ms).

    Also True if the position's own record is no longer kept. False if the first record that arrived
    at the bound does not follow the position: arrival times are out of order there, and a jump to
    the bound would read records twice.
    """
    try:
        seen = _first(ShardCursor(client, budget, shard_id, position, inclusive=True), 2)
        if not seen or seen[0].sequence_number != position.sequence_number:
            return True
        left = seen if holds_more(seen[0], position) else seen[1:]
        if not any((record.arrived_ms or 0) < bound_ms for record in left):
            return False
        at_bound = _first(ShardCursor(client, budget, shard_id, AtTimestamp(bound_ms)), 1)
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
