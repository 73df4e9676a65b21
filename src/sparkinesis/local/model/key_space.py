"""The hash key space of a stream, and the shards that divide it over time.

At every instant the open shards tile the space [0, 2**128). A reshard closes one or two of them and
opens their children at the same instant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from sparkinesis.local.model.shard_log import Shard

HASH_SPACE = 1 << 128


def uniform_starts(count: int) -> list[int]:
    """Return the starting hash keys of `count` equal shards, as CreateStream makes them."""
    width = HASH_SPACE // count
    return [width * i for i in range(count)]


class KeySpace:
    """The shards of one stream: the open ones, and those that a reshard has closed.

    born_s: the second that the sequence numbers of the first shards begin with.
    """

    def __init__(self, shard_count: int, created_ms: int, born_s: int) -> None:
        self._shards: dict[str, Shard] = {}
        self._next_index = 0
        self._open: list[Shard] = []
        self._turn = 0
        self._starts = uniform_starts(shard_count)
        for start, after in zip(self._starts, [*self._starts[1:], HASH_SPACE], strict=True):
            self._open.append(self._new_shard(start, after - 1, created_ms, born_s))

    @property
    def shards(self) -> list[Shard]:
        """The open shards, and the closed ones that are not forgotten, by id."""
        return list(self._shards.values())

    @property
    def open_shards(self) -> list[Shard]:
        """The open shards, by hash key."""
        return list(self._open)

    @property
    def last_born_s(self) -> int:
        return max(shard.born_s for shard in self._open)

    def get(self, shard_id: str) -> Shard | None:
        return self._shards.get(shard_id)

    def route(self, hash_key: int) -> Shard:
        """Return the open shard whose range contains this hash key."""
        return self._open[bisect_right(self._starts, hash_key) - 1]

    def next_shard(self) -> Shard:
        """Return the next open shard in turn, for a stream that distributes records itself."""
        self._turn = (self._turn + 1) % len(self._open)
        return self._open[self._turn]

    def existing(self, *, created_by: float, closed_from: int) -> list[Shard]:
        """Return the shards created at one instant or before, and not closed before the other."""
        return [
            s
            for s in self._shards.values()
            if s.created_ms <= created_by and (s.closed_ms is None or s.closed_ms >= closed_from)
        ]

    def forget_closed(self, horizon_ms: int) -> None:
        """Forget the shards that were closed before an instant."""
        if len(self._shards) == len(self._open):
            return
        for shard in list(self._shards.values()):
            # Shards are kept by id, so by age: children come after their parents.
            if shard.closed_ms is not None and shard.closed_ms < horizon_ms:
                del self._shards[shard.id]

    def announce(self) -> None:
        """Wake the watchers of all open shards."""
        for shard in self._open:
            shard.announce()

    def split(self, shard: Shard, new_start: int, now: int) -> None:
        """Split a shard; `new_start` becomes the first hash key of the upper child."""
        self._replace([shard], [shard.hash_start, new_start], now)

    def merge(
        self, left: Shard, right: Shard, now: int, *, named_first: Shard | None = None
    ) -> None:
        """Merge two adjacent shards; `left` has the lower hash keys.

        named_first: the shard that becomes ParentShardId; the other is AdjacentParentShardId.
        """
        first = named_first or left
        parents = [first, right if first is left else left]
        self._replace(parents, [left.hash_start], now)

    def rescale(self, count: int, now: int) -> None:
        """Reshard to `count` equal shards: split at missing boundaries, merge across the others."""
        wanted = uniform_starts(count)
        for start in wanted:
            shard = self.route(start)
            if shard.hash_start != start:
                self.split(shard, start, now)
        keep = set(wanted)
        at = 0
        while at < len(self._open):
            if self._starts[at] in keep:
                at += 1
            else:
                self.merge(self._open[at - 1], self._open[at], now)

    def _replace(self, parents: list[Shard], starts: list[int], now: int) -> None:
        # Reshards within one millisecond, or one second, are still ordered: a shard lives for at
        # least a millisecond, and a child's sequence numbers begin with a later second.
        instant = max(now, *(p.created_ms + 1 for p in parents))
        born_s = max(instant // 1000, *(p.born_s + 1 for p in parents))
        low = bisect_right(self._starts, min(p.hash_start for p in parents)) - 1
        end = max(p.hash_end for p in parents)
        parent_ids = tuple(p.id for p in parents)
        children = tuple(
            self._new_shard(start, after - 1, instant, born_s, parent_ids)
            for start, after in zip(starts, [*starts[1:], end + 1], strict=True)
        )
        for parent in parents:
            parent.close(instant, children)
        self._open[low : low + len(parents)] = children
        self._starts[low : low + len(parents)] = starts

    def _new_shard(
        self, start: int, end: int, now: int, born_s: int, parents: Iterable[str] = ()
    ) -> Shard:
        shard = Shard(
            self._next_index, start, end, created_ms=now, born_s=born_s, parents=tuple(parents)
        )
        self._next_index += 1
        self._shards[shard.id] = shard
        return shard
