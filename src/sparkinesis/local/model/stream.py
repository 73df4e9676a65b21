"""One stream: its shards, its settings, and the states that it passes through."""

from __future__ import annotations

import dataclasses

from sparkinesis.local.model.key_space import KeySpace
from sparkinesis.local.model.lifecycle import Lifecycle
from sparkinesis.local.model.limits import StreamUse
from sparkinesis.local.model.registered_consumer import Consumer
from sparkinesis.local.model.shard_log import Shard

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
