"""The life of a stream: its shards, and when retention, or its end, has removed what was put."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.simulation.query.checkpoint import Row, RowId

HOUR_MS = 3_600_000
RETENTION_HOURS = 24
"""The retention period of a new stream, and the shortest of any stream."""


@dataclass(eq=False)
class Life:
    """One stream, from its creation to its deletion. Instants are epoch milliseconds."""

    created_ms: int
    deleted_ms: float = float("inf")
    retention: list[tuple[int, int]] = field(default_factory=list)
    """Changes of the retention period: when, and to how many hours."""
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The parents of each shard that the stream ever had."""
    put_ms: dict[RowId, int] = field(default_factory=dict)

    def gone_ms(self, row: Row) -> float:
        """When a row that was put into it is removed, at the earliest."""
        # A shard that is closed is removed with all that it has, whatever the arrival times say.
        since_ms = min(row.arrival_ms, self.put_ms.get(row.id, row.arrival_ms))
        changes = [(self.created_ms, RETENTION_HOURS), *self.retention, (self.deleted_ms, 0)]
        for (began_ms, hours), (ended_ms, _) in itertools.pairwise(changes):
            expires_ms = max(began_ms, since_ms + hours * HOUR_MS)
            if expires_ms < ended_ms:
                return expires_ms
        return self.deleted_ms

    def with_descendants(self, shards: Collection[str]) -> set[str]:
        """These shards and all that came from them."""
        found = set(shards)
        # Shards are numbered as they come into being: parents are before their children.
        for shard in sorted(self.parents):
            if found.intersection(self.parents[shard]):
                found.add(shard)
        return found
