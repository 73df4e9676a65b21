"""The texts, objects and views of leases and of an application, for all commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.seen import SeenApplication, SeenLease, Totals
from sparkinesis.monitor.streams import stream_lines
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


def lease_object(seen: SeenLease, watched: WatchedTable) -> dict[str, Any]:
    """Return the JSON object of a lease; each command adds keys of its own."""
    lease, unread, ago = seen.lease, seen.unread_for, watched.renewed_ago(seen.lease.key)
    return {
        "lease": lease.key,
        "stream": lease.stream.name if lease.stream else None,
        "identifier": str(lease.stream) if lease.stream else None,
        "shard": lease.shard_id,
        "state": seen.state.value,
        "owner": lease.actual_owner,
        "handed_over_to": lease.owner if lease.checkpoint_owner else None,
        "stopped_by": list(lease.stopped_by),
        "checkpoint": checkpoint_object(lease.checkpoint, lease.timestamp_ms),
        "millis_behind_latest": seen.millis_behind,
        "lag_unknown_because": (seen.lag and seen.lag.why) or None,
        "lost_unread": (seen.lag and seen.lag.lost) or None,
        "renewed_seconds_ago": None if ago is None else round(ago, 1),
        "unread_for_seconds": None if unread is None else round(unread, 1),
    }


def lease_rows(seen: SeenApplication) -> list[dict[str, str]]:
    """Return the row of each lease for `print_table`.

    A column that few tables need is there only if a lease has a value for it.
    """
    leases = seen.watched.leases
    has_rates = any(lease.throughput_kbps is not None for lease in leases)
    has_switches = any(lease.owner_switches for lease in leases)
    has_pending = any(lease.pending for lease in leases)
    rows = []
    for one in seen.leases:
        lease, why = one.lease, one.lag.why if one.lag else ""
        is_handed_over = one.state is LeaseState.HANDED_OVER
        row = {"stream": one.stream or "-"} if seen.names else {}
        row |= {
            "shard": lease.shard_id,
            "owner": lease.actual_owner or "-",
            "state": f"handed over to {lease.owner}" if is_handed_over else one.state.value,
            "checkpoint": short_checkpoint(lease.checkpoint),
            "behind": _short_reason(why, "unknown") if why else behind(one.millis_behind),
            "renewed": _renewed(lease, seen.watched),
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


def top_view(title: str, summary: str, seen: SeenApplication, messages: Sequence[str] = ()) -> View:
    """Return the view of an application."""
    holes = list(_hole_lines(seen))
    said = (
        *messages,
        *holes,
        *stream_lines(seen.names, seen.replaced, seen.unread_streams),
        *broken_lease_lines(seen.watched),
        *lag_error_lines(seen.lags),
    )
    owners = tuple(_owner(owner, leases, seen.quiet) for owner, leases in seen.owners.items())
    streams = []
    for stream, leases in seen.streams.items():
        note = "not read" if stream in seen.unread_streams else ""
        if stream in seen.replaced:
            note = "made anew since"
        streams.append(GroupRow(seen.names[stream], *Totals.of(leases), note, bool(note)))
    shards = tuple(map(_shard, seen.leases))
    return View(title, summary, "KB/s", owners, shards, said, bool(holes), tuple(streams))


def _hole_lines(seen: SeenApplication) -> Iterator[str]:
    for stream, hole in unread_hash_keys(seen.watched).items():
        if stream not in seen.replaced:
            yield (
                f"No unfinished lease covers the hash keys {hole.first} to {hole.last}"
                f"{f' of {seen.names[stream]}' if stream else ''}: their records wait until a "
                "worker creates the missing leases."
            )


def _owner(owner: str, leases: Sequence[SeenLease], quiet: float) -> GroupRow:
    silence = _silence(leases)
    note = f"not renewed for {silence:.0f} s" if silence >= quiet else ""
    return GroupRow(owner, *Totals.of(leases), note, bool(note))


def _silence(leases: Sequence[SeenLease]) -> float:
    """Seconds since the last renewal of an owner, as far back as the table was watched."""
    return min(one.still_for for one in leases)


def _shard(seen: SeenLease) -> ShardRow:
    lease, why = seen.lease, seen.lag.why if seen.lag else ""
    notes = [
        f"to {lease.owner}" if seen.state is LeaseState.HANDED_OVER else "",
        f"unread for {seen.unread_for:.0f} s" if seen.unread_for else "",
        _short_reason(why, "lag unknown") if why else "",
        f"at {short_checkpoint(lease.checkpoint)}",
    ]
    return ShardRow(
        lease.key,
        lease.actual_owner,
        seen.state.value,
        seen.millis_behind,
        seen.rate,
        ", ".join(note for note in notes if note),
        # The shard is done; its children are read as soon as they have leases.
        is_amiss=bool(why) and why != AT_SHARD_END,
        stream=seen.stream,
    )


def top_object(application: str, stream: str | None, seen: SeenApplication) -> dict[str, Any]:
    """Return the same as an object for JSON, with full names and numbers."""
    return {
        "application": application,
        "stream": stream,
        "watched_seconds": round(seen.watched.seconds, 1),
        "owners": [
            {
                "owner": owner,
                **_totals(leases),
                "still_for_seconds": round(_silence(leases), 1),
            }
            for owner, leases in seen.owners.items()
        ],
        "streams": [
            {
                "stream": one.name,
                "identifier": str(one),
                **_totals(leases),
                "is_read": one not in seen.unread_streams,
                "made_anew_as": str(seen.replaced[one]) if one in seen.replaced else None,
            }
            for one, leases in seen.streams.items()
        ],
        "shards": [
            {**lease_object(one, seen.watched), "kilobytes_per_second": one.rate}
            for one in seen.leases
        ],
        "unread_hash_keys": {
            str(one or stream or ""): [str(hole.first), str(hole.last)]
            for one, hole in unread_hash_keys(seen.watched).items()
        },
        "broken_leases": {row.key: row.why for row in seen.watched.broken},
    }


def _totals(leases: Sequence[SeenLease]) -> dict[str, Any]:
    names = ("shards", "millis_behind_latest", "kilobytes_per_second")
    return dict(zip(names, Totals.of(leases), strict=True))
