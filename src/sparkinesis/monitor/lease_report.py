"""Rows, objects and texts of leases, for all commands. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.seen import SeenApplication, SeenLease
from sparkinesis.monitor.watched import (
    SHORT_REASONS,
    LeaseState,
    WatchedTable,
    short_checkpoint,
)
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.terminal.view import behind, rate_text

if TYPE_CHECKING:
    from sparkinesis.lease.rules.reset import LeaseReset
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
            "behind": short_reason(why, "unknown") if why else behind(one.millis_behind),
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


def short_reason(why: str, otherwise: str) -> str:
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
