"""Moves an application to another place in its stream, whether workers of it run or not.

What runs is fenced: each lease loses its owner and its counter goes up, so that the owner's next
renewal or checkpoint is refused, its processor hears ``lease_lost``, and a worker takes the shard
up again at the new place within its next looks at the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sparkinesis.errors import (
    OptionError,
    PositionNotFoundError,
    SparkinesisError,
    UnfinishedResetError,
)
from sparkinesis.lease.checkpoint_search import checkpoint_at
from sparkinesis.lease.rules.reset import (
    LeaseReset,
    ShardCheckpoint,
    at_checkpoint,
    plan_reset,
    retried,
)
from sparkinesis.lease.rules.shard_sync import through_reshard
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import AfterRecord, InitialPosition

_WRITES = 100
"""How often to write a lease again whose owner was quicker. Most write a few times a second at
most, and there are milliseconds between a look and a write."""
_AT_ONCE = 16
"""Shards in which a place is looked for at the same time."""


def plan_application_reset(
    client: StreamClient,
    table: LeaseTable,
    to: InitialPosition | ShardCheckpoint,
    wait: Callable[[float], object] = time.sleep,
) -> list[LeaseReset]:
    """The steps that move the application now, in order. Nothing is written.

    An instant, and LATEST, become the place of a record in each shard, or TRIM_HORIZON where no
    record is older: a few GetShardIterator and GetRecords calls a shard.

    Raises `OptionError` (see `plan_reset`; also for a sequence number that the shard does not
    know), `LeaseTableError`, `InconsistentShardsError`, and service errors, `AccessDeniedError`
    among them.
    """

    def plan() -> list[LeaseReset]:
        shards, now_ms = client.list_shards()
        return plan_reset(table.leases(), shards, to, now_ms)

    moves = through_reshard(plan, wait)
    if isinstance(to, ShardCheckpoint):
        _require_known(client, to)
    with ThreadPoolExecutor(_AT_ONCE, "find-place") as pool:
        return list(pool.map(lambda move: _found(client, move, wait), moves))


def _found(client: StreamClient, move: LeaseReset, wait: Callable[[float], object]) -> LeaseReset:
    """The step with a record's place for its instant, which a Java KCL would not understand.

    Whether one shares the table, or will tomorrow, cannot be told: one that has no lease leaves no
    sign.
    """
    if move.timestamp_ms is None:
        return move
    return at_checkpoint(move, checkpoint_at(client, move.key, move.timestamp_ms, wait))


def reset_application(
    client: StreamClient, table: LeaseTable, to: InitialPosition | ShardCheckpoint
) -> list[LeaseReset]:
    """Reset the application; returns the steps that were made, in order.

    Raises what `plan_application_reset` raises, before anything is written; then
    `UnfinishedResetError`.
    """
    moves = plan_application_reset(client, table, to)
    apply_resets(table, moves)
    return moves


def apply_resets(table: LeaseTable, moves: Sequence[LeaseReset]) -> None:
    """Make the steps, in order, however the rows have changed. Raises `UnfinishedResetError`."""
    for n, move in enumerate(moves):
        try:
            _write(table, move)
        except SparkinesisError as error:
            raise UnfinishedResetError(
                f"{n} of {len(moves)} leases of the {table} were moved. {move.key} could not be, "
                f"and those after it were left as they are: {error} Reset the application again.",
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
                    table.add_children(step.lease, step.child_ids)
                table.reset(step.lease, step.at, step.written_ms, step.now_ms, step.began_ms)
            except LeaseChangedError as changed:
                row = changed.row
            else:
                return
        step = retried(step, row)
    raise SparkinesisError(
        f"The lease changed {_WRITES} times between a look at it and a write; its "
        "owner writes to it all the time, and is closer to the table."
    )


def _require_known(client: StreamClient, to: ShardCheckpoint) -> None:
    """Raise `OptionError` unless the service takes the sequence number for one of the shard's."""
    try:
        client.shard_iterator(to.shard_id, AfterRecord(to.at.sequence_number), inclusive=True)
    except PositionNotFoundError:
        raise OptionError(
            f"{to.at.sequence_number} is not a sequence number of {to.shard_id} in "
            f"{client.address}, or it has expired. Nothing was written."
        ) from None
