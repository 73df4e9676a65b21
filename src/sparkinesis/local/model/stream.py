"""One stream: the states that it passes through, its hash key space, and its settings.

The shards divide the hash key space over time. At every instant the open ones tile [0, 2**128). A
reshard closes one or two of them and opens their children at the same instant.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterable

from sparkinesis.local.model.limits import StreamUse
from sparkinesis.local.model.registered_consumer import Consumer
from sparkinesis.local.model.shard_log import Shard


class Lifecycle:
    """A resource whose creation, changes and deletion may take a while.

    status: CREATING, ACTIVE, UPDATING or DELETING.
    """

    def __init__(self) -> None:
        self.status = "ACTIVE"
        # The instant of the next change, and what it changes; of a DELETING resource, its end.
        self._pending: tuple[int, Callable[[int], None]] | None = None

    @property
    def is_serving(self) -> bool:
        """True unless the resource is CREATING or DELETING: it takes and gives records."""
        return self.status in {"ACTIVE", "UPDATING"}

    @property
    def due_ms(self) -> int | None:
        """The time at which a delayed change takes effect; None if no change is pending."""
        return self._pending[0] if self._pending is not None else None

    def is_gone(self, now: int) -> bool:
        return self.status == "DELETING" and self.due_ms is not None and now >= self.due_ms

    def announce(self) -> None:
        """Wake all that wait for this resource."""

    def settle(self, now: int) -> None:
        """Apply a delayed change that is due."""
        is_due = self.due_ms is not None and now >= self.due_ms
        if self._pending is not None and is_due and self.status != "DELETING":
            due, change = self._pending
            self._pending = None
            change(due)
            self.status = "ACTIVE"

    def create(self, now: int, delay_ms: int) -> None:
        """Become ACTIVE now, or after `delay_ms` in CREATING."""
        self._pass_through("CREATING", self.begin, now, delay_ms)

    def begin(self, now: int) -> None:
        """Become ACTIVE for the first time."""

    def change(self, change: Callable[[int], None], now: int, delay_ms: int) -> None:
        """Apply `change(instant)` now, or `delay_ms` later; the status is UPDATING until then."""
        self._pass_through("UPDATING", change, now, delay_ms)

    def delete(self, now: int, delay_ms: int) -> None:
        """Be gone now, or after `delay_ms` in DELETING."""
        self.status = "DELETING"
        self._pending = now + delay_ms, _change_nothing

    def _pass_through(
        self, status: str, change: Callable[[int], None], now: int, delay_ms: int
    ) -> None:
        if delay_ms <= 0:
            change(now)
            return
        self.status = status
        self._pending = (now + delay_ms, change)
        self.announce()


def _change_nothing(now: int) -> None:
    del now


HASH_SPACE = 1 << 128


def _uniform_starts(count: int) -> list[int]:
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
        self._starts = _uniform_starts(shard_count)
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
        wanted = _uniform_starts(count)
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


HOUR_MS = 3_600_000
DEFAULT_RETENTION_HOURS = 24
MAX_RETENTION_HOURS = 8760
ON_DEMAND = "ON_DEMAND"
ON_DEMAND_SHARDS = 4
"""The shards of a new stream in this mode; each takes 1 MiB per second."""
BY_PARTITION_KEY = "USER_PARTITION_KEY"
"""The default record distribution strategy; the other one is AUTO."""


def warm_shards(mibps: int) -> int:
    """Return the shards for a warm throughput: one per MiB per second, no fewer than at first."""
    return max(mibps, ON_DEMAND_SHARDS)


@dataclasses.dataclass
class ServiceSettings:
    """The settings of a stream, besides its shards and its retention.

    encryption_key: the key's id; None for a stream that is not encrypted.
    metrics: the shard-level metrics that are enabled.
    warm_mibps, warm_target_mibps: the warm throughput now, and the one that the stream scales to.
    """

    mode: str
    max_record_bytes: int
    distribution: str = BY_PARTITION_KEY
    encryption_key: str | None = None
    metrics: frozenset[str] = frozenset()
    warm_mibps: int | None = None
    warm_target_mibps: int | None = None

    @property
    def is_on_demand(self) -> bool:
        return self.mode == ON_DEMAND

    @property
    def distributes_records(self) -> bool:
        """True if the stream itself chooses each record's shard: partition keys are optional."""
        return self.distribution != BY_PARTITION_KEY

    def set_mode(self, mode: str) -> None:
        """Switch the capacity mode; the shards stay. PROVISIONED ends what only ON_DEMAND has."""
        self.mode = mode
        if not self.is_on_demand:
            self.distribution = BY_PARTITION_KEY
            self.warm_mibps = self.warm_target_mibps = None


class Retention:
    """The time for which records are kept."""

    def __init__(self) -> None:
        self.hours = DEFAULT_RETENTION_HOURS
        # Longer retention does not bring back records that were already trimmed.
        self._floor_ms = 0

    def horizon_ms(self, now: int) -> int:
        """Return the retention horizon: records that arrived earlier are trimmed."""
        return max(now - self.hours * HOUR_MS, self._floor_ms)

    def set(self, hours: int, now: int) -> None:
        self._floor_ms = self.horizon_ms(now)
        self.hours = hours


class Stream(Lifecycle):
    """A stream.

    born_s: the second that the sequence numbers of the first shards begin with.
    """

    def __init__(
        self,
        name: str,
        arn: str,
        shard_count: int,
        *,
        mode: str,
        created_ms: int,
        born_s: int,
        max_record_bytes: int,
    ) -> None:
        super().__init__()
        self.name = name
        self.arn = arn
        self.created_ms = created_ms
        self.key_space = KeySpace(shard_count, created_ms, born_s)
        self.settings = ServiceSettings(mode, max_record_bytes)
        self.retention = Retention()
        self.policy: str | None = None
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}
        self.use = StreamUse()

    @property
    def shards(self) -> list[Shard]:
        """The open shards, and the closed ones within retention, by id."""
        return self.key_space.shards

    @property
    def open_shards(self) -> list[Shard]:
        """The open shards, by hash key."""
        return self.key_space.open_shards

    def trim_horizon_ms(self, now: int) -> int:
        """Return the instant of TRIM_HORIZON: the horizon, or the creation if that is later."""
        return max(self.retention.horizon_ms(now), self.created_ms)

    def trim(self, shard: Shard, now: int) -> None:
        shard.log.trim(self.retention.horizon_ms(now))

    # The passing of time

    def settle(self, now: int) -> None:
        """Apply what is due: a delayed change, and the removal of consumers and expired shards."""
        super().settle(now)
        for consumer in list(self.consumers.values()):
            if consumer.gone_ms is not None and now >= consumer.gone_ms:
                del self.consumers[consumer.name]
        self.key_space.forget_closed(self.retention.horizon_ms(now))

    def announce(self) -> None:
        self.key_space.announce()

    # Changes

    def set_retention(self, hours: int, now: int) -> None:
        self.settle(now)
        self.retention.set(hours, now)

    def scale_to(self, mibps: int, now: int) -> None:
        """Reach a warm throughput, with the shards that it needs."""
        self.settings.warm_mibps = mibps
        count = warm_shards(mibps)
        if count != len(self.open_shards):
            self.key_space.rescale(count, now)
