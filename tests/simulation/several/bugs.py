"""Deliberate bugs that mix several streams up, each as a patch of one name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.stream_identity import SameStreams
from sparkinesis.worker.lifecycle.loops import RenewalLoop
from sparkinesis.worker.lifecycle.streams import former_leases
from sparkinesis.worker.lifecycle.streams.several_streams import SeveralStreams
from sparkinesis.worker.lifecycle.worker_state import WorkerState
from tests.simulation.patches import always
from tests.simulation.subject import Bug, instead

_READ = "every_shard_is_read"
_FORMER = "former_leases_are_deleted_by_the_rules"
_ORDER = "parents_come_first"


def _shard(key: object) -> str:
    return str(key).rpartition(":")[2]


class _ByShard(dict[str, Any]):
    """What has the same shard id is the same."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(_shard(key), value)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(_shard(key))

    def __delitem__(self, key: str) -> None:
        super().__delitem__(_shard(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_shard(key))


class _Shards(frozenset[str]):
    """Holds each lease of shards that have these ids."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_shard(key))


def _without_epoch(of: Any) -> Any:
    return lambda arn, created_ms: replace(of(arn, created_ms), creation_epoch=1)


def _first_epoch(identified: Any) -> Any:
    """What is known of a stream is not replaced by what the service says later."""

    def first(self: Any, one: Any, result: Any, known: Any) -> Any:
        return one if one.identity is not None else identified(self, one, result, known)

    return first


def _consumers_by_shard(init: Any) -> Any:
    def by_shard(self: Any, settings: Any) -> None:
        init(self, settings)
        self.consumers = _ByShard()

    return by_shard


def _busy_by_shard(busy: Any) -> Any:
    return lambda self: _Shards(map(_shard, busy(self)))


def _parents_by_shard(_: Any) -> Any:
    return property(lambda self: self.parent_ids)


def _parents_of_any_stream(are_finished: Any) -> Any:
    """A parent is looked up among the leases of all streams; the first one's row decides."""

    def of_any(self: Any, keys: Any) -> Any:
        rows = sorted(self.snapshot.leases, key=lambda row: row.key)
        found = [next((r.key for r in rows if r.shard_id == _shard(k)), k) for k in keys]
        return are_finished(self, found)

    return of_any


def _row_of_another_stream(checkpoint: Any) -> Any:
    """A checkpoint is written to the row of the first stream that has a shard of this id."""
    known: dict[str, set[str]] = {}

    def write(lease: Any, *more: Any, **named: Any) -> Any:
        update = checkpoint(lease, *more, **named)
        keys = known.setdefault(lease.shard_id, set())
        keys.add(lease.key)
        if min(keys) == lease.key:
            return update
        return replace(update, after=replace(update.after, key=min(keys)), expected={})

    return write


def _leases_of_all(of: Any) -> Any:
    """The leases of all streams count as those of each."""
    return lambda self, stream: of(self, stream) if stream is None else self


def _at_once(deletable: Any) -> Any:
    def at_once(since: Any, now: float, *, delete_after: Any, **more: Any) -> Any:
        soon = None if delete_after is None else 0.0
        return deletable(since, now, **{**more, "delete_after": soon, "grace": 0.0})

    return at_once


def _any_stream(deletable: Any) -> Any:
    def of_any(since: Any, now: float, *, only: Any = None, **more: Any) -> Any:
        del only
        return deletable(since, now, **more)

    return of_any


def _though_it_stays(deletable: Any) -> Any:
    """A cleanup takes what is to stay for what may go."""

    def delete(self: Any, seen: Any, is_wanted: Any, is_ending: Any) -> None:
        if self._former.delete_after is None:
            self._former = replace(self._former, delete_after=0.0)
        deletable(self, seen, is_wanted, is_ending)

    return delete


def _one_after_the_other(start: Any) -> Any:
    """A stream is opened when those before it are open."""

    def first_only(self: Any, *more: Any) -> None:
        whole = self._tracked
        waiting = [address for address, one in whole.items() if one.stream is None]
        self._tracked = {address: whole[address] for address in waiting[:1]}
        try:
            start(self, *more)
        finally:
            self._tracked = whole

    return first_only


def _ask_each_stream(measure: Any) -> Any:
    """Before leases are renewed, the service is asked about the stream of each."""

    def ask(self: Any) -> None:
        for consumer in self.state.running_consumers().values():
            with suppress(SparkinesisError):
                consumer._settings.client.describe()
        measure(self)

    return ask


def _never_left(get: Any) -> Any:
    """A stream is read for as long as it was open once."""
    return lambda self, stream: get(self, stream) or self._left.get(stream)


SEVERAL_BUGS: dict[str, Bug] = {
    # epochs
    "streams are identified without their epochs": instead(
        StreamIdentifier, "of", _without_epoch, "leases_name_their_streams", 0
    ),
    "the old epoch is kept when a stream was made anew": instead(
        SeveralStreams, "_identified", _first_epoch, _READ, 2
    ),
    "records are not checked for the epoch of their stream": instead(
        SameStreams, "require", always(None), "streams_are_kept_apart", 37
    ),
    # shard ids
    "consumers are kept by shard id": instead(
        WorkerState, "__init__", _consumers_by_shard, _READ, 0
    ),
    "busy leases are compared by shard id": instead(
        WorkerState, "busy_leases", _busy_by_shard, _READ, 5
    ),
    "parents are looked up by shard id": instead(
        Lease, "parent_keys", _parents_by_shard, _ORDER, 0
    ),
    "a parent is sought in another stream": instead(
        LeaseCoordinator, "are_finished", _parents_of_any_stream, _ORDER, 35
    ),
    "a checkpoint is written to another stream's row": instead(
        requests, "checkpoint", _row_of_another_stream, "only_the_owner_checkpoints", 0
    ),
    "the leases of all streams count as those of each": instead(
        TableScan, "of", _leases_of_all, _READ, 2
    ),
    # streams that have left
    "the leases of a former stream are deleted at once": instead(
        former_leases, "deletable_streams", _at_once, _FORMER, 1
    ),
    "the leases of former streams are deleted although they are to stay": instead(
        former_leases.FormerLeases, "delete", _though_it_stays, _FORMER, 9
    ),
    "leases are deleted of former streams that may not go": instead(
        former_leases, "deletable_streams", _any_stream, _FORMER, 12
    ),
    "the leases of former streams are never deleted": instead(
        former_leases, "deletable_streams", always([]), _READ, 1
    ),
    "a stream that has left is read on": instead(
        SeveralStreams, "get", _never_left, "former_streams_are_left", 1
    ),
    # streams that fail
    "a stream is opened when those before it are open": instead(
        SeveralStreams, "_start_opening", _one_after_the_other, "other_streams_are_read_in_time", 24
    ),
    "renewals wait for what is asked about streams": instead(
        RenewalLoop, "_measure_throughput", _ask_each_stream, "leases_are_renewed_in_time", 10
    ),
}
