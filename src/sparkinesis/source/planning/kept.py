"""What a planner keeps from plan to plan: it saves calls and CPU, and decides nothing.

Dropping it changes no plan, because all of it can be found again from the start of the next batch.
The planner drops it after a long pause, in which records and shards may have expired.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from sparkinesis.source.offsets import Positions
from sparkinesis.source.planning.batch_end import Walk, known_until, walk
from sparkinesis.source.planning.probing.shard_prober import ShardProber
from sparkinesis.source.planning.shard_listing import ListedShards
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.shard import Lineage


class Kept:
    """The known shards, their probers, and conclusions from the last start. Owned by one thread.

    A conclusion is one of the very same objects, as comparing thousands of positions takes long.
    """

    def __init__(self, stream: StreamTools, retry: Backoff | None) -> None:
        """``retry``: the retries of calls up to the first listing of shards."""
        self.listing = ListedShards(stream, retry)
        self.probers: dict[str, ShardProber] = {}
        """The probers of the shards that the next batch may read, with the records in hand."""
        self.is_present = stream.is_batch_read
        """True once the positions were checked to belong to this stream, not to a deleted one."""
        self.created_ms = 0
        """The creation time of the stream in epoch ms; 0 while the positions were not checked."""
        self.is_complete = stream.is_batch_read
        """True once the offset from which the query resumes was checked for forgotten shards."""
        self._whole: tuple[Positions, Lineage] | None = None
        self._walked: tuple[Positions, Lineage, AbstractSet[str], Walk] | None = None
        self._known_until: tuple[Positions, int | None] | None = None

    def is_whole(self, start: Positions) -> bool:
        """Return True if an earlier plan found no shard of this very start missing."""
        if self._whole is None:
            return False
        then, lineage = self._whole
        return then is start and lineage is self.listing.lineage

    def note_whole(self, start: Positions) -> None:
        self._whole = start, self.listing.lineage

    def walk(self, start: Positions, finished: AbstractSet[str]) -> Walk:
        """Return `walk`'s result for the known shards."""
        lineage = self.listing.lineage
        if self._walked is not None:
            then, listed, ended, walked = self._walked
            if then is start and listed is lineage and ended == finished:
                return walked
        walked = walk(start, lineage, finished)
        self._walked = start, lineage, finished, walked
        return walked

    def known_until(self, start: Positions) -> int | None:
        """Return `known_until`'s result."""
        if self._known_until is None or self._known_until[0] is not start:
            self._known_until = start, known_until(start)
        return self._known_until[1]
