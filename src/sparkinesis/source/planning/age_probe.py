"""Whether a shard is behind the bound of ``skipOlderThan``, seen by a page or two."""

from __future__ import annotations

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.source.planning.sampling import arrival_ms
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
    """Whether what follows ``position`` arrived before ``bound_ms`` (epoch ms).

    True also when the record of the position itself is no longer kept: what followed is older still
    than what is. False when the first record that arrived at the bound is not behind the position:
    arrival times are out of order there, and going on at the bound would read records again.
    """
    try:
        seen = _first(ShardCursor(client, budget, shard_id, position, inclusive=True), 2)
        if not seen or seen[0].sequence_number != position.sequence_number:
            return True
        left = seen if holds_more(seen[0], position) else seen[1:]
        if not any(arrival_ms(record) < bound_ms for record in left):
            return False
        at_bound = _first(ShardCursor(client, budget, shard_id, AtTimestamp(bound_ms)), 1)
    except (PositionNotFoundError, ShardNotFoundError):
        return True
    place = sequence_order(position.sequence_number)
    return not at_bound or sequence_order(at_bound[0].sequence_number) > place


def _first(cursor: ShardCursor, count: int) -> list[Record]:
    """The records that a cursor meets first; fewer if it reaches the tip, or the end, before."""
    seen: list[Record] = []
    while len(seen) < count and not cursor.at_end:
        page = cursor.fetch(count).page
        seen += page.records
        if not page.millis_behind_latest:
            break
    return seen
