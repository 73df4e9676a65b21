"""The view and the JSON object that `sparkinesis top` makes of a watched lease table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkinesis.cli.lease_report import (
    broken_lease_lines,
    lag_error_lines,
    lease_object,
    short_reason,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.watched import (
    AT_SHARD_END,
    LeaseState,
    WatchedTable,
    lease_states,
    short_checkpoint,
    unread_hash_keys,
)
from sparkinesis.terminal.view import OwnerRow, ShardRow, View, largest, total

if TYPE_CHECKING:
    from sparkinesis.monitor.lags import Lag

QUIET = 7.0
"""Seconds without a renewal that are worth a note: KCLs renew every 3.3 seconds by default."""


def top_view(
    title: str,
    summary: str,
    watched: WatchedTable,
    lags: Mapping[str, Lag],
    *,
    messages: Sequence[str] = (),
    quiet: float = QUIET,
) -> View:
    """Return the view of a lease table.

    ``lags``: by lease key. ``quiet``: an owner without renewals for so many seconds is lost.
    """
    states = lease_states(watched.leases)
    by_owner = _by_owner(watched)
    silences = {owner: _silence(watched, leases) for owner, leases in by_owner.items()}
    lost = {owner for owner, silence in silences.items() if silence >= quiet}
    shards = tuple(
        _shard(
            lease, states[lease.key], lags.get(lease.key), is_read=lease.actual_owner not in lost
        )
        for lease in watched.leases
    )
    mine: dict[str, list[ShardRow]] = defaultdict(list)
    for lease, row in zip(watched.leases, shards, strict=True):
        if row.owner is not None and not lease.is_finished:
            mine[row.owner].append(row)
    owners = tuple(
        OwnerRow(
            owner,
            len(rows),
            largest(row.millis_behind for row in rows),
            total(row.rate for row in rows),
            f"not renewed for {silences[owner]:.0f} s" if owner in lost else "",
            owner in lost,
        )
        for owner, rows in sorted(mine.items())
    )
    unread = unread_hash_keys(watched)
    holes = [
        f"No unfinished lease covers the hash keys {hole.first} to {hole.last}"
        f"{f' of {stream}' if stream else ''}: their records wait until a worker creates the "
        "missing leases."
        for stream, hole in sorted(unread.items())
    ]
    said = (*messages, *holes, *broken_lease_lines(watched), *lag_error_lines(lags))
    return View(title, summary, "KB/s", owners, shards, said, is_partial=bool(unread))


def top_object(
    application: str, stream: str | None, watched: WatchedTable, lags: Mapping[str, Lag]
) -> dict[str, Any]:
    """Return the same as an object for JSON, with full names and numbers."""
    states = lease_states(watched.leases)
    return {
        "application": application,
        "stream": stream,
        "watched_seconds": round(watched.seconds, 1),
        "owners": [
            {
                "owner": owner,
                "shards": len(leases),
                "millis_behind_latest": largest(
                    lag.millis_behind_latest for one in leases if (lag := lags.get(one.key))
                ),
                "kilobytes_per_second": total(one.throughput_kbps for one in leases),
                "still_for_seconds": round(_silence(watched, leases), 1),
            }
            for owner, leases in sorted(_by_owner(watched).items())
        ],
        "shards": [
            _object(lease, states[lease.key], watched, lags.get(lease.key))
            for lease in watched.leases
        ],
        "unread_hash_keys": {
            name or stream or "": [str(hole.first), str(hole.last)]
            for name, hole in sorted(unread_hash_keys(watched).items())
        },
        "broken_leases": {row.key: row.why for row in watched.broken},
    }


def _by_owner(watched: WatchedTable) -> dict[str, list[Lease]]:
    found: dict[str, list[Lease]] = defaultdict(list)
    for lease in watched.leases:
        if lease.actual_owner is not None and not lease.is_finished:
            found[lease.actual_owner].append(lease)
    return found


def _silence(watched: WatchedTable, leases: Sequence[Lease]) -> float:
    """Seconds since the last renewal of an owner, as far back as the table was watched."""
    return min(watched.still_for(lease.key) for lease in leases)


def _shard(lease: Lease, state: LeaseState, lag: Lag | None, *, is_read: bool) -> ShardRow:
    is_held = state in {LeaseState.HELD, LeaseState.HANDED_OVER}
    why = lag.why if lag else ""
    notes = [
        f"to {lease.owner}" if state is LeaseState.HANDED_OVER else "",
        short_reason(lag, "lag unknown") if lag and lag.why else "",
        f"at {short_checkpoint(lease.checkpoint)}",
    ]
    return ShardRow(
        lease.key,
        lease.actual_owner,
        state.value,
        lag.millis_behind_latest if lag else None,
        # A rate that a lost owner wrote says nothing about now.
        lease.throughput_kbps if is_held and is_read else None,
        ", ".join(note for note in notes if note),
        # The shard is done; its children are read as soon as they have leases.
        is_amiss=bool(why) and why != AT_SHARD_END,
    )


def _object(
    lease: Lease, state: LeaseState, watched: WatchedTable, lag: Lag | None
) -> dict[str, Any]:
    return {
        **lease_object(lease, state, watched, lag),
        "kilobytes_per_second": lease.throughput_kbps,
    }
