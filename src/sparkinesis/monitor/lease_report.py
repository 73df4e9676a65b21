"""The texts, objects and views of leases and of an application, for all commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot, LeaseSnapshot, Totals
from sparkinesis.monitor.chosen_streams import stream_lines
from sparkinesis.monitor.watched import (
    AT_SHARD_END,
    SHORT_REASONS,
    LeaseState,
    WatchedTable,
    short_checkpoint,
    unread_hash_keys,
)
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.terminal.view import GroupRow, ShardRow, View, behind, rate_text

if TYPE_CHECKING:
    from sparkinesis.lease.rules.reset_plan import LeaseReset
    from sparkinesis.monitor.lags import Lag

_MOST_REASONS = 5


def checkpoint_object(at: ExtendedSequenceNumber, timestamp_ms: int | None) -> dict[str, Any]:
    """Return the JSON object of a checkpoint, with the epoch ms of LATEST or AT_TIMESTAMP."""
    found = {
        "sequence_number": at.sequence_number,
        "sub_sequence_number": at.sub_sequence_number,
    }
    return found if timestamp_ms is None else {**found, "timestamp_ms": timestamp_ms}


def instant_text(at: datetime | None) -> str | None:
    """Return an instant as text, in UTC; None if there is none."""
    if at is None:
        return None
    return at.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checkpoint_text(at: ExtendedSequenceNumber, timestamp_ms: int | None) -> str:
    """Return a checkpoint as text, with the instant that it represents or was found for."""
    if timestamp_ms is None:
        return short_checkpoint(at)
    text = f"{instant_text(AtTimestamp(timestamp_ms).instant)}"
    return text if at.sequence_number == AT_TIMESTAMP else f"{short_checkpoint(at)} as of {text}"


def reset_texts(move: LeaseReset) -> tuple[str, str]:
    """Return the position of a lease before a reset and after it, as text."""
    row = move.lease
    before = "no lease" if row is None else checkpoint_text(row.checkpoint, row.timestamp_ms)
    return before, checkpoint_text(move.at, move.timestamp_ms)


def lease_object(snapshot: LeaseSnapshot, watched: WatchedTable) -> dict[str, Any]:
    """Return the JSON object of a lease; each command adds keys of its own."""
    lease, unread, ago = (
        snapshot.lease,
        snapshot.unread_for,
        watched.renewed_ago(snapshot.lease.key),
    )
    return {
        "lease": lease.key,
        "stream": lease.stream.name if lease.stream else None,
        "identifier": str(lease.stream) if lease.stream else None,
        "shard": lease.shard_id,
        "state": snapshot.state.value,
        "owner": lease.actual_owner,
        "handed_over_to": lease.owner if lease.checkpoint_owner else None,
        "stopped_by": list(lease.stopped_by),
        "checkpoint": checkpoint_object(lease.checkpoint, lease.timestamp_ms),
        "millis_behind_latest": snapshot.millis_behind,
        "lag_unknown_because": (snapshot.lag and snapshot.lag.why) or None,
        "lost_unread": (snapshot.lag and snapshot.lag.lost) or None,
        "renewed_seconds_ago": None if ago is None else round(ago, 1),
        "unread_for_seconds": None if unread is None else round(unread, 1),
    }


def lease_rows(snapshot: ApplicationSnapshot) -> list[dict[str, str]]:
    """Return the row of each lease for `print_table`.

    A column that few tables need is there only if a lease has a value for it.
    """
    leases = snapshot.watched.leases
    has_rates = any(lease.throughput_kbps is not None for lease in leases)
    has_switches = any(lease.owner_switches for lease in leases)
    has_pending = any(lease.pending for lease in leases)
    rows = []
    for one in snapshot.leases:
        lease, why = one.lease, one.lag.why if one.lag else ""
        is_handed_over = one.state is LeaseState.HANDED_OVER
        row = {"stream": one.stream or "-"} if snapshot.names else {}
        row |= {
            "shard": lease.shard_id,
            "owner": lease.actual_owner or "-",
            "state": f"handed over to {lease.owner}" if is_handed_over else one.state.value,
            "checkpoint": short_checkpoint(lease.checkpoint),
            "behind": _short_reason(why, "unknown") if why else behind(one.millis_behind),
            "renewed": _renewed(lease, snapshot.watched),
        }
        if has_rates:
            row["KB/s"] = rate_text(one.rate)
        if has_switches:
            row["switches"] = str(lease.owner_switches or "-")
        if has_pending:
            row["pending"] = short_checkpoint(lease.pending.at) if lease.pending else "-"
        rows.append(row)
    return rows


def _renewed(lease: Lease, watched: WatchedTable) -> str:
    ago = watched.renewed_ago(lease.key)
    if ago is not None:
        return f"{ago:.1f} s ago"
    if lease.actual_owner is None or lease.is_finished:
        return "-"
    return f"none in {watched.seconds:.0f} s" if watched.seconds else "not watched"


def _short_reason(why: str, otherwise: str) -> str:
    """Return the reason for an unknown lag if it fits a column, else ``otherwise``."""
    return why if why in SHORT_REASONS else otherwise


def broken_lease_lines(watched: WatchedTable) -> list[str]:
    """Return a line for each row that cannot be read as a lease."""
    return [f"The lease {row} cannot be read." for row in watched.broken]


def lag_error_lines(lags: Mapping[str, Lag]) -> list[str]:
    """Return what is lost, and the reasons too long for a column, each once.

    One problem often affects all shards.
    Of many, as of a thousand streams that may not be read, the first ones.
    """
    every = sorted({lag.lost for lag in lags.values()} - {""})
    every += sorted({lag.why for lag in lags.values()} - {"", *SHORT_REASONS})
    left = len(every) - _MOST_REASONS
    more = [f"The lags of other shards are unknown for {left} more reasons."] if left > 0 else []
    return every[:_MOST_REASONS] + more


def top_view(
    title: str, summary: str, snapshot: ApplicationSnapshot, messages: Sequence[str] = ()
) -> View:
    """Return the view of an application."""
    holes = list(_hole_lines(snapshot))
    said = (
        *messages,
        *holes,
        *stream_lines(snapshot.names, snapshot.replaced, snapshot.unread_streams),
        *broken_lease_lines(snapshot.watched),
        *lag_error_lines(snapshot.lags),
    )
    owners = tuple(
        _owner(owner, leases, snapshot.quiet) for owner, leases in snapshot.owners.items()
    )
    streams = []
    for stream, leases in snapshot.streams.items():
        note = "not read" if stream in snapshot.unread_streams else ""
        if stream in snapshot.replaced:
            note = "made anew since"
        streams.append(GroupRow(snapshot.names[stream], *Totals.of(leases), note, bool(note)))
    shards = tuple(map(_shard, snapshot.leases))
    return View(title, summary, "KB/s", owners, shards, said, bool(holes), tuple(streams))


def _hole_lines(snapshot: ApplicationSnapshot) -> Iterator[str]:
    for stream, hole in unread_hash_keys(snapshot.watched).items():
        if stream not in snapshot.replaced:
            yield (
                f"No unfinished lease covers the hash keys {hole.first} to {hole.last}"
                f"{f' of {snapshot.names[stream]}' if stream else ''}: their records wait until a "
                "worker creates the missing leases."
            )


def _owner(owner: str, leases: Sequence[LeaseSnapshot], quiet: float) -> GroupRow:
    silence = _silence(leases)
    note = f"not renewed for {silence:.0f} s" if silence >= quiet else ""
    return GroupRow(owner, *Totals.of(leases), note, bool(note))


def _silence(leases: Sequence[LeaseSnapshot]) -> float:
    """Seconds since the last renewal of an owner, as far back as the table was watched."""
    return min(one.still_for for one in leases)


def _shard(snapshot: LeaseSnapshot) -> ShardRow:
    lease, why = snapshot.lease, snapshot.lag.why if snapshot.lag else ""
    notes = [
        f"to {lease.owner}" if snapshot.state is LeaseState.HANDED_OVER else "",
        f"unread for {snapshot.unread_for:.0f} s" if snapshot.unread_for else "",
        _short_reason(why, "lag unknown") if why else "",
        f"at {short_checkpoint(lease.checkpoint)}",
    ]
    return ShardRow(
        lease.key,
        lease.actual_owner,
        snapshot.state.value,
        snapshot.millis_behind,
        snapshot.rate,
        ", ".join(note for note in notes if note),
        # The shard is done; its children are read as soon as they have leases.
        is_amiss=bool(why) and why != AT_SHARD_END,
        stream=snapshot.stream,
    )


def top_object(
    application: str, stream: str | None, snapshot: ApplicationSnapshot
) -> dict[str, Any]:
    """Return the view as an object for JSON, with full names and numbers."""
    return {
        "application": application,
        "stream": stream,
        "watched_seconds": round(snapshot.watched.seconds, 1),
        "owners": [
            {
                "owner": owner,
                **_totals(leases),
                "still_for_seconds": round(_silence(leases), 1),
            }
            for owner, leases in snapshot.owners.items()
        ],
        "streams": [
            {
                "stream": one.name,
                "identifier": str(one),
                **_totals(leases),
                "is_read": one not in snapshot.unread_streams,
                "made_anew_as": str(snapshot.replaced[one]) if one in snapshot.replaced else None,
            }
            for one, leases in snapshot.streams.items()
        ],
        "shards": [
            {**lease_object(one, snapshot.watched), "kilobytes_per_second": one.rate}
            for one in snapshot.leases
        ],
        "unread_hash_keys": {
            str(one or stream or ""): [str(hole.first), str(hole.last)]
            for one, hole in unread_hash_keys(snapshot.watched).items()
        },
        "broken_leases": {row.key: row.why for row in snapshot.watched.broken},
    }


def _totals(leases: Sequence[LeaseSnapshot]) -> dict[str, Any]:
    names = ("shards", "millis_behind_latest", "kilobytes_per_second")
    return dict(zip(names, Totals.of(leases), strict=True))
