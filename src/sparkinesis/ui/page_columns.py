"""A snapshot as columns of tables and charts, and the shards of a stream as a map. Pure.

An unknown number is -1 in a table, whose cells show "-" then, and NaN in a chart, whose line ends.

On the map, hash keys go upwards and time to the right; splits and merges are its vertical borders.
The shards are those of the stream's listing and those of the lease table: either may know some that
the other does not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkinesis.errors import printable
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.watched import LeaseState
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard
from sparkinesis.terminal.printing import short_shard
from sparkinesis.terminal.view import GroupRow, ShardRow, behind, lateness, rate_text
from sparkinesis.ui.watcher import PageSnapshot

Columns = dict[str, list[Any]]

OWNERS = (
    "#3b7dd8", "#e0892b", "#3f9d5a", "#8a63c9", "#c2598f", "#2d9aa8", "#a97c50", "#6f8f2f",
    "#5b6fd6", "#b35c44",
)  # fmt: skip
"""The colours of owners, by their order; more owners share them."""
CLOSED, UNREAD = "#c4c9d1", "#d63a3a"
FRESH, LATE, VERY_LATE, NO_LAG = "#3f9d5a", "#e0a32b", "#d63a3a", "#c4c9d1"
_PARTS = 0.15
"""The part of a map's width that is left of the first reshard."""
_HOUR = 3600.0
_EDGE_FITS = 0.8
"""The least height of a box, in percent of the hash keys, that has an edge."""
_NUMBER_FITS = 3.0
"""The least height of a box, in percent of the hash keys, that holds its shard's number."""


def shard_columns(snapshot: PageSnapshot) -> Columns:
    """Return the table of shards, in the order of `sparkinesis top`."""
    leases = {lease.key: lease for lease in snapshot.table.leases}
    rows = [(row, leases[row.shard]) for row in snapshot.view.shards]
    children = _children(snapshot.table.leases)
    rates = snapshot.reported.shard_rates
    return {
        "lease": [row.shard for row, _ in rows],
        "stream": [printable(row.stream) for row, _ in rows],
        "shard": [printable(lease.shard_id) for _, lease in rows],
        "owner": [printable(row.owner or "-") for row, _ in rows],
        "state": [row.state for row, _ in rows],
        "behind_ms": [_known(row.millis_behind) for row, _ in rows],
        "behind": [behind(row.millis_behind) for row, _ in rows],
        "late": [_late(row) for row, _ in rows],
        "kbps": [_known(row.rate) for row, _ in rows],
        "kbps_text": [rate_text(row.rate) for row, _ in rows],
        "records": [_known(rates.get(row.shard)) for row, _ in rows],
        "records_text": [rate_text(rates.get(row.shard)) for row, _ in rows],
        "checkpoint": [str(lease.checkpoint) for _, lease in rows],
        "parents": [_short(lease.parent_ids) for _, lease in rows],
        "children": [
            _short((*lease.child_ids, *children.get((lease.stream, lease.shard_id), ())))
            for _, lease in rows
        ],
        "note": [_note(row) for row, _ in rows],
    }


def worker_columns(snapshot: PageSnapshot) -> Columns:
    """Return the table of workers: owners of leases, and workers that say they run."""
    owners = {row.name: row for row in snapshot.view.owners}
    said = snapshot.reported
    names = sorted(owners.keys() | said.worker_rates.keys())
    rows = [owners.get(name, GroupRow(name, 0, None, None)) for name in names]
    every = sum(row.state != LeaseState.FINISHED.value for row in snapshot.view.shards)
    records = [said.worker_rates.get(name) for name in names]
    notes = [", ".join(filter(None, (row.note, said.worker_notes.get(row.name)))) for row in rows]
    colours = owner_colours(snapshot)
    return {
        "worker": [printable(name) for name in names],
        "colour": [colours.get(name, CLOSED) for name in names],
        "shards": [row.shards for row in rows],
        "share": [round(100 * row.shards / every, 1) if every else 0.0 for row in rows],
        "behind_ms": [_known(row.millis_behind) for row in rows],
        "behind": [behind(row.millis_behind) for row in rows],
        "kbps": [_known(row.rate) for row in rows],
        "kbps_text": [rate_text(row.rate) for row in rows],
        "records": [_known(rate) for rate in records],
        "records_text": [rate_text(rate) for rate in records],
        "note": notes,
    }


def map_columns(snapshot: PageSnapshot, stream: StreamIdentifier | None) -> Columns:
    """Return the map of a stream's shards: a box for each, in milliseconds and in percent."""
    leases = [lease for lease in snapshot.table.leases if lease.stream == stream]
    shards = shard_map(leases, snapshot.listed.get(stream, ()))
    rows = {row.shard: row for row in snapshot.view.shards}
    colours = owner_colours(snapshot)
    left = _map_begin([one.ended for one in shards if one.ended is not None], snapshot.at)
    spans = [_span(one, shards, left, snapshot.at) for one in shards]
    places = [rows.get(one.key or "") for one in shards]
    return {
        "shard": [one.shard_id for one in shards],
        "left": [begin * 1000 for begin, _ in spans],
        "right": [end * 1000 for _, end in spans],
        "bottom": [100 * one.keys[0] for one in shards],
        "top": [100 * one.keys[1] for one in shards],
        "by_owner": [
            _owner_colour(row, one, colours) for one, row in zip(shards, places, strict=True)
        ],
        "by_lag": [_lag_colour(row, one) for one, row in zip(shards, places, strict=True)],
        # The white edges of boxes of half a pixel would hide them.
        "edge": [1.0 if 100 * (one.keys[1] - one.keys[0]) >= _EDGE_FITS else 0.0 for one in shards],
        "faded": [1.0 if one.is_open else 0.45 for one in shards],
        "owner": [(row and row.owner) or "-" for row in places],
        "state": [row.state if row else "no lease" for row in places],
        "behind": [behind(row.millis_behind if row else None) for row in places],
        "kbps": [rate_text(row.rate if row else None) for row in places],
        "is_open": ["open" if one.is_open else "closed" for one in shards],
        "parents": [_short(one.parents) or "-" for one in shards],
        "children": [_short(one.children) or "-" for one in shards],
        "number": [
            short_shard(one.shard_id)
            if one.is_open and 100 * (one.keys[1] - one.keys[0]) >= _NUMBER_FITS
            else ""
            for one in shards
        ],
        "middle": [50 * (one.keys[0] + one.keys[1]) for one in shards],
    }


def _map_begin(ends: Sequence[float], now: float) -> float:
    """Return the left edge of a map: a while before its first reshard; else an hour ago."""
    if not ends:
        return now - _HOUR
    return now - max(60.0, now - min(ends)) / (1 - _PARTS)


def map_edges(found: Columns, now: float) -> tuple[float, float]:
    """Return the left and the right edge of a map with these boxes, in milliseconds."""
    ends = [right / 1000 for right in found["right"] if right / 1000 < now]
    begin = max([_map_begin(ends, now) * 1000, min(found["left"], default=-math.inf)])
    return begin, now * 1000


def chart_columns(snapshot: PageSnapshot) -> Columns:
    """Return the lag in seconds and the rates of the last hour."""
    return {
        "at": [point.at * 1000 for point in snapshot.history],
        "lag": [
            _or_nan(None if point.lag_ms is None else point.lag_ms / 1000)
            for point in snapshot.history
        ],
        "kbps": [_or_nan(point.kilobytes_per_second) for point in snapshot.history],
        "records": [_or_nan(point.records_per_second) for point in snapshot.history],
    }


def owner_colours(snapshot: PageSnapshot) -> dict[str, str]:
    """Return the colour of each owner."""
    owners = [row.name for row in snapshot.view.owners]
    return {owner: OWNERS[n % len(OWNERS)] for n, owner in enumerate(owners)}


def _late(row: ShardRow) -> str:
    """Return the attention that a shard needs: "", late, very-late, amiss."""
    is_amiss = row.is_amiss and row.millis_behind is None
    return "amiss" if is_amiss else lateness(row.millis_behind)


def _short(shard_ids: Sequence[str]) -> str:
    return ", ".join(map(short_shard, sorted(set(shard_ids))))


def _children(
    leases: Sequence[Lease],
) -> dict[tuple[StreamIdentifier | None, str], list[str]]:
    found: dict[tuple[StreamIdentifier | None, str], list[str]] = {}
    for lease in leases:
        for parent in lease.parent_ids:
            found.setdefault((lease.stream, parent), []).append(lease.shard_id)
    return found


def _note(row: ShardRow) -> str:
    """The note without the checkpoint, which has a column of its own."""
    return ", ".join(part for part in row.note.split(", ") if not part.startswith("at "))


def _span(
    one: MappedShard, shards: Sequence[MappedShard], left: float, now: float
) -> tuple[float, float]:
    """Return the begin and the end of a box.

    Where the begin of a shard after a reshard is unknown, its generation stands for it.
    """
    last = max(each.generation for each in shards) + 1
    slice_ = (now - left) / last
    begin = one.began
    if begin is None:
        begin = left + one.generation * slice_
    end = one.ended
    if end is None:
        end = now if one.is_open or one.generation + 1 == last else begin + slice_
    return min(begin, end), max(begin, end)


def _owner_colour(row: ShardRow | None, shard: MappedShard, colours: Mapping[str, str]) -> str:
    if row is None:
        # The lease of a closed shard is deleted once it is finished.
        return UNREAD if shard.is_open else CLOSED
    if row.state == LeaseState.FINISHED.value:
        return CLOSED
    return UNREAD if row.owner is None else colours.get(row.owner, CLOSED)


def _lag_colour(row: ShardRow | None, shard: MappedShard) -> str:
    if row is None:
        return UNREAD if shard.is_open else CLOSED
    fine = NO_LAG if row.millis_behind is None else FRESH
    return {"amiss": VERY_LATE, "very-late": VERY_LATE, "late": LATE}.get(_late(row), fine)


def _known(number: float | None) -> float:
    return -1 if number is None else number


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


_FIRST_YEAR, _LAST_YEAR = 1_356_998_400, 7_258_118_400
"""2013, in which Kinesis began, and 2200, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class MappedShard:
    """A shard's place on the map."""

    shard_id: str
    key: str | None
    """The key of its lease; None: the shard has no lease."""
    parents: tuple[str, ...]
    children: tuple[str, ...]
    keys: tuple[float, float]
    """The first and the last hash key, as shares of all of them: 0 to 1."""
    generation: int
    """0 for a shard without a known parent, else one more than the greatest of its parents."""
    began: float | None
    """Seconds since the epoch; None if unknown."""
    ended: float | None
    """Seconds since the epoch: the begin of its first child; None if open, or unknown."""
    is_open: bool
    """False once the shard takes no more records."""


def shard_map(leases: Iterable[Lease], listed: Iterable[Shard]) -> list[MappedShard]:
    """Return the shards of one stream, parents first; without those of unknown hash keys."""
    by_lease = {lease.shard_id: lease for lease in leases}
    by_listing = {shard.id: shard for shard in listed}
    every = sorted(by_lease.keys() | by_listing.keys())
    parents = {one: _parents(by_lease.get(one), by_listing.get(one)) for one in every}
    children: defaultdict[str, set[str]] = defaultdict(set)
    for one in every:
        for parent in parents[one]:
            children[parent].add(one)
        if (lease := by_lease.get(one)) is not None:
            children[one].update(lease.child_ids)
    generations = _generations(parents)
    began = {one: _began(by_lease.get(one), by_listing.get(one)) for one in every}
    found = []
    for one in sorted(every, key=lambda each: (generations[each], each)):
        lease, shard = by_lease.get(one), by_listing.get(one)
        hash_range = shard.hash_range if shard else None
        if hash_range is None and lease is not None:
            hash_range = lease.hash_range
        if hash_range is None:
            continue
        ends = [at for child in children[one] if (at := began.get(child)) is not None]
        is_closed = (shard is not None and not shard.is_open) or bool(children[one])
        found.append(
            MappedShard(
                one,
                lease.key if lease else None,
                parents[one],
                tuple(sorted(children[one])),
                (hash_range[0] / (MAX_HASH_KEY + 1), (hash_range[1] + 1) / (MAX_HASH_KEY + 1)),
                generations[one],
                began[one],
                min(ends, default=None) if is_closed else None,
                not (is_closed or (lease is not None and lease.is_finished)),
            )
        )
    return found


def born(sequence_number: str) -> int | None:
    """Return the second since the epoch in which the shard of a sequence number was made.

    The service does not document that its numbers hold it, and other servers' may not: None then.
    Nothing but a picture may rest on it.
    """
    if not (sequence_number.isdecimal() and len(sequence_number) < 60):
        return None
    number = int(sequence_number)
    second = (number >> 148) & 0xF_FFFF_FFFF
    is_known = number.bit_length() == 186 and number & 0xF == 2
    return second if is_known and _FIRST_YEAR <= second < _LAST_YEAR else None


def _parents(lease: Lease | None, shard: Shard | None) -> tuple[str, ...]:
    known = set(lease.parent_ids if lease else ()) | set(shard.parents if shard else ())
    return tuple(sorted(known))


def _began(lease: Lease | None, shard: Shard | None) -> float | None:
    listed = born(shard.starting_sequence_number) if shard else None
    return born(lease.checkpoint.sequence_number) if listed is None and lease else listed


def _generations(parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return each shard's generation. Shards get their ids in the order of their creation."""
    found: dict[str, int] = {}
    for one in sorted(parents):
        found[one] = max((found[p] + 1 for p in parents[one] if p in found), default=0)
    return found
