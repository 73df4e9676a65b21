"""Moves an application to another position in its stream or streams, running or not.

Running workers are fenced: each lease loses its owner, and its counter goes up. The owner's next
renewal or checkpoint is refused, ``lease_lost`` of its processor is called, and a worker takes the
shard again at the new position within its next scans of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from sparkinesis.errors import (
    InconsistentShardsError,
    OptionError,
    PositionNotFoundError,
    SparkinesisError,
    UnfinishedResetError,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.moving.checkpoint_search import checkpoint_at
from sparkinesis.lease.rules.reset_plan import (
    LeaseReset,
    ShardCheckpoint,
    at_checkpoint,
    plan_reset,
    require_one_stream,
    retried,
)
from sparkinesis.lease.rules.row_streams import require_no_others, streams_of_rows
from sparkinesis.lease.rules.shard_sync import through_reshard
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import AfterRecord, InitialPosition

_E = TypeVar("_E", bound=SparkinesisError)

_WRITES = 100
"""Tries of a write to a lease that its owner keeps changing. Owners write a few times a second at
most, and milliseconds lie between a read and a write."""
_AT_ONCE = 16
"""Shards that are searched for a record at the same time."""
_STREAMS_AT_ONCE = 8
"""Streams whose shards are listed at the same time."""


@dataclass(frozen=True)
class StreamToReset:
    """A stream of the application to reset."""

    client: StreamClient
    stream: StreamIdentifier | None = None
    """The stream that its leases name; None: the application reads only this one."""

    def explained(self, error: _E) -> _E:
        """Return an error of the plan; with several streams, it names the stream."""
        if self.stream is None:
            return error
        return type(error)(f"In the {self.client.address}: {error}")


def plan_resets(
    streams: Sequence[StreamToReset],
    table: LeaseTable,
    to: InitialPosition | ShardCheckpoint,
    wait: Callable[[float], object] = time.sleep,
) -> list[LeaseReset]:
    """Return the resets that move the application in these streams now, in order. Writes nothing.

    An instant or LATEST becomes a record's position in each shard, or TRIM_HORIZON if no record is
    older. This takes a ListShards call for each stream, and a few GetShardIterator and GetRecords
    calls for each shard.

    Raises `OptionError` (see `plan_reset`; also for a sequence number that the shard does not
    know), `InconsistentShardsError`, and service errors, also if only one of several streams cannot
    be read.
    """
    require_one_stream(to, len(streams))
    planned: dict[StreamIdentifier | None, list[LeaseReset]] = {}

    def plan() -> None:
        rest = [one for one in streams if one.stream not in planned]
        with ThreadPoolExecutor(_STREAMS_AT_ONCE, "list-shards") as pool:
            listings = list(pool.map(lambda one: one.client.list_shards(), rest))
        scan = table.scan()
        trouble: InconsistentShardsError | None = None
        for one, (shards, now_ms) in zip(rest, listings, strict=True):
            if one.stream is None and scan.several_streams.leases:
                raise OptionError(
                    f"The leases of the {table} name their streams: the application reads several. "
                    "Name the stream to reset in. Nothing was written."
                )
            leases = table.sound(scan.of(one.stream))
            if one.stream is None:
                _require_own(one.client, leases, table)
            try:
                planned[one.stream] = plan_reset(leases, shards, to, now_ms, one.stream)
            except InconsistentShardsError as error:
                trouble = trouble or one.explained(error)
            except OptionError as error:
                raise one.explained(error) from None
        if trouble is not None:
            raise trouble

    through_reshard(plan, wait)
    if isinstance(to, ShardCheckpoint):
        for one in streams:
            _require_known(one.client, to)
    moves = [(one.client, move) for one in streams for move in planned[one.stream]]
    with ThreadPoolExecutor(_AT_ONCE, "find-place") as pool:
        return list(pool.map(lambda pair: _found(pair[0], pair[1], wait), moves))


def _require_own(client: StreamClient, leases: Sequence[Lease], table: LeaseTable) -> None:
    """Raise an error for leases that name another stream, or a deleted one of the same name."""
    named = [lease for lease in leases if lease.mark is not None]
    if not named:
        return
    created_ms = client.describe().created_ms
    stream = StreamMark.of(client.stream_arn(), created_ms)
    found = streams_of_rows(named, (), stream)
    require_no_others(found, stream, str(table))
    if found.former or found.newer:
        raise OptionError(
            f"The {table} has leases of another {client.address}, which was created at another "
            "time: it was deleted and made anew. Nothing was written. Start a worker, which makes "
            "the leases anew, and reset the application then. Or stop all workers and delete the "
            "table, so that they begin at the initial position."
        )


def _found(client: StreamClient, move: LeaseReset, wait: Callable[[float], object]) -> LeaseReset:
    """Return the reset with a record in place of its instant.

    A Java KCL does not understand the instant. Whether one shares the table, or will tomorrow, is
    not known: a worker without a lease leaves no sign.
    """
    if move.timestamp_ms is None:
        return move
    return at_checkpoint(move, checkpoint_at(client, move.row.shard_id, move.timestamp_ms, wait))


def apply_resets(table: LeaseTable, moves: Sequence[LeaseReset]) -> None:
    """Write the resets in order, also to rows that changed. Raises `UnfinishedResetError`."""
    for n, move in enumerate(moves):
        try:
            _write(table, move)
        except SparkinesisError as error:
            raise UnfinishedResetError(
                f"{n} of {len(moves)} leases of the {table} were reset. {move.key} could not be "
                f"reset, and the leases after it were not tried: {error} Reset the application "
                "again.",
                moves[:n],
                moves[n:],
            ) from error


def _write(table: LeaseTable, move: LeaseReset) -> None:
    step: LeaseReset | None = move
    for _ in range(_WRITES):
        if step is None:
            return
        if step.create is not None:
            if table.create(step.create):
                return
            row = table.get(step.key)
        else:
            assert step.lease is not None
            try:
                if not set(step.child_ids) <= set(step.lease.child_ids):
                    table.write(requests.add_children(step.lease, step.child_ids))
                table.write(
                    requests.reset(step.lease, step.at, step.written_ms, step.now_ms, step.began_ms)
                )
            except LeaseChangedError as changed:
                row = changed.row
            else:
                return
        step = retried(step, row)
    raise SparkinesisError(
        f"The lease changed {_WRITES} times between a read and a write: its owner writes to it all "
        "the time."
    )


def _require_known(client: StreamClient, to: ShardCheckpoint) -> None:
    """Raise `OptionError` unless the service accepts the sequence number as one of the shard."""
    try:
        client.shard_iterator(to.shard_id, AfterRecord(to.at.sequence_number), inclusive=True)
    except PositionNotFoundError:
        raise OptionError(
            f"{to.at.sequence_number} is not a sequence number of {to.shard_id} in "
            f"{client.address}, or it has expired. Nothing was written."
        ) from None
