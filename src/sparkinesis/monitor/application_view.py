"""The view and the JSON object of a watched lease table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkinesis.lease.lease import Lease, leases_by_stream
from sparkinesis.lease.rules.audit import Hole
from sparkinesis.monitor.lease_report import (
    broken_lease_lines,
    lag_error_lines,
    lag_millis,
    lease_object,
    short_reason,
)
from sparkinesis.monitor.streams import replaced_streams, shown_names, stream_lines
from sparkinesis.monitor.watched import (
    AT_SHARD_END,
    QUIET,
    LeaseState,
    WatchedTable,
    lease_states,
    short_checkpoint,
    unread_for,
    unread_hash_keys,
)
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.terminal.view import OwnerRow, ShardRow, StreamRow, View, largest, total

if TYPE_CHECKING:
    from sparkinesis.monitor.lags import Lag


def top_view(
    title: str,
    summary: str,
    watched: WatchedTable,
    lags: Mapping[str, Lag],
    *,
    messages: Sequence[str] = (),
    unread_streams: Collection[StreamIdentifier] = (),
    quiet: float = QUIET,
) -> View:
    """Return the view of a lease table.

    ``lags``: by lease key. ``unread_streams``: those that no live worker reads. ``quiet``: an
    owner without renewals for so many seconds is lost.
    """
    states, names = lease_states(watched.leases), shown_names(watched.streams)
    by_owner, ages = _by_owner(watched), unread_for(watched, quiet)
    silences = {owner: _silence(watched, leases) for owner, leases in by_owner.items()}
    lost = {owner for owner, silence in silences.items() if silence >= quiet}
    shards = tuple(
        _shard(
            lease,
            states[lease.key],
            lags.get(lease.key),
            ages.get(lease.key),
            is_read=lease.actual_owner not in lost,
            stream=names[lease.stream] if lease.stream else "",
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
    replaced = replaced_streams(watched.streams)
    holes = {one: hole for one, hole in unread_hash_keys(watched).items() if one not in replaced}
    said = (
        *messages,
        *(_hole_line(hole, names[one] if one else "") for one, hole in holes.items()),
        *stream_lines(watched.streams, unread_streams),
        *broken_lease_lines(watched),
        *lag_error_lines(lags),
    )
    rows_of: dict[str, list[ShardRow]] = defaultdict(list)
    for row in shards:
        rows_of[row.stream].append(row)
    streams = tuple(
        _stream_row(name, rows_of[name], _stream_note(one, replaced, unread_streams))
        for one, name in names.items()
    )
    is_partial = bool(holes)
    return View(title, summary, "KB/s", owners, shards, said, is_partial, streams)


def _hole_line(hole: Hole, stream: str) -> str:
    return (
        f"No unfinished lease covers the hash keys {hole.first} to {hole.last}"
        f"{f' of {stream}' if stream else ''}: their records wait until a worker creates the "
        "missing leases."
    )


def top_object(
    application: str,
    stream: str | None,
    watched: WatchedTable,
    lags: Mapping[str, Lag],
    *,
    unread_streams: Collection[StreamIdentifier] = (),
    quiet: float = QUIET,
) -> dict[str, Any]:
    """Return the same as an object for JSON, with full names and numbers."""
    states, ages = lease_states(watched.leases), unread_for(watched, quiet)
    return {
        "application": application,
        "stream": stream,
        "watched_seconds": round(watched.seconds, 1),
        "owners": [
            {
                "owner": owner,
                "shards": len(leases),
                "millis_behind_latest": largest(
                    lag_millis(lags.get(one.key), ages.get(one.key)) for one in leases
                ),
                "kilobytes_per_second": total(one.throughput_kbps for one in leases),
                "still_for_seconds": round(_silence(watched, leases), 1),
            }
            for owner, leases in sorted(_by_owner(watched).items())
        ],
        "streams": _stream_objects(watched, lags, ages, unread_streams),
        "shards": [
            _object(lease, states[lease.key], watched, lags.get(lease.key), ages.get(lease.key))
            for lease in watched.leases
        ],
        "unread_hash_keys": {
            str(one or stream or ""): [str(hole.first), str(hole.last)]
            for one, hole in unread_hash_keys(watched).items()
        },
        "broken_leases": {row.key: row.why for row in watched.broken},
    }


def _stream_note(
    stream: StreamIdentifier,
    replaced: Container[StreamIdentifier],
    unread: Container[StreamIdentifier],
) -> str:
    if stream in replaced:
        return "made anew since"
    return "not read" if stream in unread else ""


def _stream_row(name: str, rows: Sequence[ShardRow], note: str) -> StreamRow:
    return StreamRow(
        name,
        sum(row.state != LeaseState.FINISHED.value for row in rows),
        largest(row.millis_behind for row in rows),
        total(row.rate for row in rows),
        note,
        is_amiss=bool(note),
    )


def _by_owner(watched: WatchedTable) -> dict[str, list[Lease]]:
    found: dict[str, list[Lease]] = defaultdict(list)
    for lease in watched.leases:
        if lease.actual_owner is not None and not lease.is_finished:
            found[lease.actual_owner].append(lease)
    return found


def _silence(watched: WatchedTable, leases: Sequence[Lease]) -> float:
    """Seconds since the last renewal of an owner, as far back as the table was watched."""
    return min(watched.still_for(lease.key) for lease in leases)


def _shard(
    lease: Lease,
    state: LeaseState,
    lag: Lag | None,
    unread: float | None,
    *,
    is_read: bool,
    stream: str,
) -> ShardRow:
    is_held = state in {LeaseState.HELD, LeaseState.HANDED_OVER}
    why = lag.why if lag else ""
    notes = [
        f"to {lease.owner}" if state is LeaseState.HANDED_OVER else "",
        f"unread for {unread:.0f} s" if unread else "",
        short_reason(lag, "lag unknown") if lag and lag.why else "",
        f"at {short_checkpoint(lease.checkpoint)}",
    ]
    return ShardRow(
        lease.key,
        lease.actual_owner,
        state.value,
        lag_millis(lag, unread),
        # A rate that a lost owner wrote says nothing about now.
        lease.throughput_kbps if is_held and is_read else None,
        ", ".join(note for note in notes if note),
        # The shard is done; its children are read as soon as they have leases.
        is_amiss=bool(why) and why != AT_SHARD_END,
        stream=stream,
    )


def _stream_objects(
    watched: WatchedTable,
    lags: Mapping[str, Lag],
    ages: Mapping[str, float],
    unread: Container[StreamIdentifier],
) -> list[dict[str, Any]]:
    replaced = replaced_streams(watched.streams)
    leases = leases_by_stream(watched.leases)
    return [
        {
            "stream": stream.name,
            "identifier": str(stream),
            "shards": sum(not one.is_finished for one in its),
            "millis_behind_latest": largest(
                lag_millis(lags.get(one.key), ages.get(one.key)) for one in its
            ),
            "kilobytes_per_second": total(one.throughput_kbps for one in its if one.actual_owner),
            "is_read": stream not in unread,
            "made_anew_as": str(replaced[stream]) if stream in replaced else None,
        }
        for stream in shown_names(watched.streams)
        for its in [leases[stream]]
    ]


def _object(
    lease: Lease,
    state: LeaseState,
    watched: WatchedTable,
    lag: Lag | None,
    unread: float | None,
) -> dict[str, Any]:
    return {
        **lease_object(lease, state, watched, lag, unread),
        "kilobytes_per_second": lease.throughput_kbps,
    }
