"""Planted bugs that mix several streams up, each as one change of the package."""

from __future__ import annotations

from typing import Any

from tests.simulation.subject import planted


def _shard(key: object) -> str:
    return str(key).rpartition(":")[2]


class ByShard(dict[str, Any]):
    """What has the same shard id is the same."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(_shard(key), value)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(_shard(key))

    def __delitem__(self, key: str) -> None:
        super().__delitem__(_shard(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_shard(key))


SEVERAL_BUGS = planted("""
streams are identified without their epochs | leases_name_their_streams
    stream.address:StreamIdentifier.of
    - created_ms // 1000
    + 1
the old epoch is kept when a stream was made anew | every_shard_is_read
    worker.lifecycle.streams.several_streams:SeveralStreams._identified
    + return one if one.identity is not None else was(self, one, result, known)
records are not checked for the epoch of their stream | streams_are_kept_apart | rare
    stream.calls.stream_identity:SameStreams.require
    + pass
consumers are kept by shard id | every_shard_is_read
    worker.lifecycle.worker_state:SharedState.__init__
    - self.consumers: dict[str, ShardConsumer] = {}
    + from tests.simulation.several.bugs import ByShard
    + self.consumers = ByShard()
busy leases are compared by shard id | every_shard_is_read
    worker.lifecycle.worker_state:SharedState.busy_leases
    + from tests.simulation.several.bugs import ByShard
    + busy = ByShard()
    + for key in was(self):
    +     busy[key] = None
    + return busy
parents are looked up by shard id | parents_come_first
    lease.lease:Lease.parent_keys
    + return self.parent_ids
a parent is sought in another stream | parents_come_first | rare
    lease.coordinator:LeaseCoordinator.are_finished
    + rows = sorted(self.snapshot.leases, key=lambda row: row.key, reverse=True)
    + first = {row.shard_id: row.key for row in rows}
    + return was(self, [first.get(key.rpartition(":")[2], key) for key in keys])
a checkpoint is written to another stream's row | only_the_owner_checkpoints
    lease.table.requests:checkpoint
    + update = was(lease, at, timestamp_ms, known, moved_ms)
    + keys = was.__dict__.setdefault(lease.shard_id, set())
    + keys.add(lease.key)
    + if min(keys) == lease.key:
    +     return update
    + return replace(update, after=replace(update.after, key=min(keys)), expected={})
the leases of all streams count as those of each | every_shard_is_read
    lease.table.rows:TableScan.of
    + return was(self, None) if stream is None else self
the leases of a former stream are deleted at once | former_leases_are_deleted_by_the_rules
    lease.rules.audit:deletable_streams
    - max(grace, delete_after)
    + 0.0
the leases of former streams are deleted although they are to stay
    | former_leases_are_deleted_by_the_rules
    worker.lifecycle.streams.former_leases:FormerLeases._delete_due
    - self._former.delete_after
    + self._former.delete_after or 0.0
leases are deleted of former streams that may not go | former_leases_are_deleted_by_the_rules
    lease.rules.audit:deletable_streams
    - if only is None or
    + if True or
the leases of former streams are never deleted | every_shard_is_read
    lease.rules.audit:deletable_streams
    + return []
a stream that has left is read on | former_streams_are_left
    worker.lifecycle.streams.tracked:SharedStreams.get
    + return was(self, stream) or self._left.get(stream)
a stream is opened when those before it are open | other_streams_are_read_in_time | rare
    worker.lifecycle.streams.several_streams:SeveralStreams._start_opening
    - todo = [one for one in self._tracked.values() if one.is_to_be_opened(now)]
    + first = [one for one in self._tracked.values() if one.stream is None][:1]
    + todo = [one for one in first if one.is_to_be_opened(now)]
renewals wait for what is asked about streams | leases_are_renewed_in_time
    worker.lifecycle.loops:RenewalLoop._measure_throughput
    + for consumer in self.state.running_consumers().values():
    +     try:
    +         consumer._settings.client.describe()
    +     except SparkinesisError:
    +         pass
    + was(self)
""")
