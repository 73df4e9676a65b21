"""What is said of a lease, wherever it is shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.streams import shown_names
from sparkinesis.monitor.watched import (
    QUIET,
    SHORT_REASONS,
    LeaseState,
    WatchedTable,
    counted_lag,
    lease_states,
    short_checkpoint,
    unread_for,
)
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.terminal.view import behind, rate_text

if TYPE_CHECKING:
    from sparkinesis.monitor.lags import Lag


_MOST_REASONS = 5


def lag_millis(lag: Lag | None, unread: float | None) -> int | None:
    """Return the lag to show; None if it was not measured, or could not be.

    ``unread``: seconds for which no live worker has read the shard.
    """
    if lag is None or lag.why:
        return None
    return counted_lag(lag.millis_behind_latest, unread)


def checkpoint_object(at: ExtendedSequenceNumber, timestamp_ms: int | None) -> dict[str, Any]:
    """Return the JSON object of a checkpoint, with the epoch ms of LATEST or AT_TIMESTAMP."""
    found = {
        "sequence_number": at.sequence_number,
        "sub_sequence_number": at.sub_sequence_number,
    }
    return found if timestamp_ms is None else {**found, "timestamp_ms": timestamp_ms}


def checkpoint_text(at: ExtendedSequenceNumber, timestamp_ms: int | None) -> str:
    """Return a checkpoint as text, with the instant that it represents or was found for."""
    if timestamp_ms is None:
        return short_checkpoint(at)
    instant = AtTimestamp(timestamp_ms).instant.isoformat(timespec="milliseconds")
    text = instant.replace("+00:00", "Z")
    return text if at.sequence_number == AT_TIMESTAMP else f"{short_checkpoint(at)} as of {text}"


def lease_object(
    lease: Lease,
    state: LeaseState,
    watched: WatchedTable,
    lag: Lag | None,
    unread: float | None,
) -> dict[str, Any]:
    """Return the JSON object of a lease; each command adds keys of its own."""
    ago = watched.renewed_ago(lease.key)
    return {
        "lease": lease.key,
        "stream": lease.stream.name if lease.stream else None,
        "identifier": str(lease.stream) if lease.stream else None,
        "shard": lease.shard_id,
        "state": state.value,
        "owner": lease.actual_owner,
        "handed_over_to": lease.owner if lease.checkpoint_owner else None,
        "checkpoint": checkpoint_object(lease.checkpoint, lease.timestamp_ms),
        "millis_behind_latest": lag_millis(lag, unread),
        "lag_unknown_because": (lag and lag.why) or None,
        "renewed_seconds_ago": None if ago is None else round(ago, 1),
        "unread_for_seconds": None if unread is None else round(unread, 1),
    }


def lease_rows(
    watched: WatchedTable, lags: Mapping[str, Lag], quiet: float = QUIET
) -> list[dict[str, str]]:
    """Return the row of each lease for `print_table`.

    A column that few tables need is there only if a lease has a value for it.
    """
    names = shown_names(watched.streams)
    states = lease_states(watched.leases)
    unread = unread_for(watched, quiet)
    has_rates = any(lease.throughput_kbps is not None for lease in watched.leases)
    has_switches = any(lease.owner_switches for lease in watched.leases)
    has_pending = any(lease.pending for lease in watched.leases)
    rows = []
    for lease in watched.leases:
        state = states[lease.key]
        row = {"stream": names[lease.stream] if lease.stream else "-"} if names else {}
        row |= {
            "shard": lease.shard_id,
            "owner": lease.actual_owner or "-",
            "state": f"handed over to {lease.owner}"
            if state is LeaseState.HANDED_OVER
            else state.value,
            "checkpoint": short_checkpoint(lease.checkpoint),
            "behind": lag_text(lags.get(lease.key), unread.get(lease.key)),
            "renewed": _renewed(lease, watched),
        }
        if has_rates:
            is_read = state in {LeaseState.HELD, LeaseState.HANDED_OVER}
            row["KB/s"] = rate_text(lease.throughput_kbps if is_read else None)
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


def lag_text(lag: Lag | None, unread: float | None = None) -> str:
    """Return the lag for a column: a duration, a short reason, "unknown", or "-" without a lag."""
    if lag is not None and lag.why:
        return short_reason(lag)
    return behind(lag_millis(lag, unread))


def short_reason(lag: Lag, otherwise: str = "unknown") -> str:
    """Return the reason for an unknown lag if it fits a column, else ``otherwise``."""
    return lag.why if lag.why in SHORT_REASONS else otherwise


def broken_lease_lines(watched: WatchedTable) -> list[str]:
    """Return a line for each row that cannot be read as a lease."""
    return [f"The lease {row} cannot be read." for row in watched.broken]


def lag_error_lines(lags: Mapping[str, Lag]) -> list[str]:
    """Return the reasons too long for a column, each once: one problem often affects all shards.

    Of many, as of a thousand streams that may not be read, the first ones.
    """
    every = sorted({lag.why for lag in lags.values()} - {"", *SHORT_REASONS})
    left = len(every) - _MOST_REASONS
    more = [f"The lags of other shards are unknown for {left} more reasons."] if left > 0 else []
    return every[:_MOST_REASONS] + more
