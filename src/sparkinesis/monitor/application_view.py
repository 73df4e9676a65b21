"""The view and the JSON object of an application. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sparkinesis.monitor.lease_report import (
    broken_lease_lines,
    lag_error_lines,
    lease_object,
    short_reason,
)
from sparkinesis.monitor.seen import SeenApplication, SeenLease, Totals
from sparkinesis.monitor.streams import stream_lines
from sparkinesis.monitor.watched import (
    AT_SHARD_END,
    LeaseState,
    short_checkpoint,
    unread_hash_keys,
)
from sparkinesis.terminal.view import GroupRow, ShardRow, View


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
        short_reason(why, "lag unknown") if why else "",
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
