"""Which rows of a table are of a stream, of an earlier one of its name, or of another. Pure.

A table has the rows of an application of one stream or of several, and these are kept apart.

A row of this library names its stream (`Lease.mark`). A row of a KCL, or of an older version, is
judged by what it holds; if nothing contradicts it, it is believed.
"""

# A row that names no stream cannot be proven to be of one; it can only be refuted. Two errors are
# possible. To believe a row of another stream skips or repeats that stream's records. To refuse a
# row of this one stops an application that was right, after an upgrade for instance. So:
#
# - What never changes refutes: hash keys that differ from the shard's, a checkpoint outside of the
#   shard's sequence numbers. A finished row of an open shard is refuted, or the shard would never
#   be read.
# - Age refutes only where no record vouches for the row. A checkpoint within its shard outweighs
#   it: older versions went on with the rows of a stream that was made anew, and such applications
#   were refused at first. The service's creation time may be a millisecond off.
# - A refuted row is one of a former stream only if another row names that stream. Otherwise it may
#   be one of an application that lives, and nothing is written.

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

import msgspec

from sparkinesis.errors import LeaseTableError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import last_known_position
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.position import AfterRecord, sequence_order
from sparkinesis.stream.reading.retention import is_of_another_stream
from sparkinesis.stream.shard import Lineage, Shard

_OTHER_TABLE = "Give this application another name, or another table_name."
_NOTHING = "Nothing was written, and no lease was taken."
_WAY_OVER = (
    "Give this application another table_name. Or stop all workers and run `sparkinesis "
    "convert-leases --to {}`, which gives the rows the other keys and keeps the checkpoints."
)


class RowStreams(msgspec.Struct, frozen=True):
    """The rows that are not of the stream."""

    former: tuple[Lease, ...] = ()
    """Rows of a deleted stream that had the name before."""
    newer: tuple[Lease, ...] = ()
    """Rows of a stream that has the name now: the caller's knowledge is old."""
    others: tuple[Lease, ...] = ()
    """Rows of a stream of another name, region or account."""
    contradicted: tuple[tuple[Lease, str], ...] = ()
    """Rows that name no stream, and what shows that they are not of this one."""


def streams_of_rows(
    rows: Iterable[Lease], shards: Iterable[Shard], stream: StreamMark
) -> RowStreams:
    """Return the rows that are not of ``stream``.

    ``shards``: those that ListShards returns; needed for rows that name no stream.

    A row that names no stream, and that is finished or cannot be of this one, belongs to a former
    stream of the name if another row does. Without such a row, one that cannot be of this stream
    may be that of an application which lives.
    """
    rows, lineage = list(rows), Lineage.of(shards)
    former, newer, others = [], [], []
    contradicted: list[tuple[Lease, str]] = []
    for row in rows:
        if row.mark is None:
            why = _contradiction(row, lineage.shards.get(row.shard_id), stream.created_ms)
            if why is not None:
                contradicted.append((row, why))
        elif not row.mark.has_name_of(stream):
            others.append(row)
        elif row.mark.is_before(stream):
            former.append(row)
        elif not row.mark.is_stream(stream):
            newer.append(row)
    if former:
        refused = [row for row, _ in contradicted]
        former += [row for row in rows if row.mark is None and (row.is_finished or row in refused)]
        contradicted = []
    return RowStreams(tuple(former), tuple(newer), tuple(others), tuple(contradicted))


def _contradiction(row: Lease, shard: Shard | None, created_ms: int) -> str | None:
    """Return what shows that a row is not of this shard; None if nothing does."""
    known = last_known_position(row)
    if shard is None:
        if row.is_finished:
            return None  # a cleanup deletes it, whatever stream it is of
    elif None not in {row.hash_range, shard.hash_range} and row.hash_range != shard.hash_range:
        return f"it has the hash keys {row.hash_range}, and the shard has {shard.hash_range}"
    elif row.is_finished and shard.is_open:
        return "it is finished, and the shard is open"
    elif not row.checkpoint.is_sentinel:
        at, last = sequence_order(row.checkpoint.sequence_number), shard.ending_sequence_number
        if at < sequence_order(shard.starting_sequence_number):
            return (
                f"its checkpoint {row.checkpoint} lies before the shard's first sequence number, "
                f"{shard.starting_sequence_number}"
            )
        if last is not None and at > sequence_order(last):
            return (
                f"its checkpoint {row.checkpoint} lies behind the shard's last sequence number, "
                f"{last}"
            )
        if not isinstance(known, AfterRecord):
            # The row may be older than the stream, and its checkpoint, within the shard, is not:
            # older versions went on with the rows of a stream that was made anew.
            return None
    if known is not None and is_of_another_stream(known, created_ms):
        return f"it was written at {known}, before the stream was created"
    return None


def require_no_others(found: RowStreams, stream: StreamMark, table: str) -> None:
    """Raise `LeaseTableError` for rows of another stream. ``table``: its name and place."""
    if found.others:
        other = found.others[0].mark
        assert other is not None
        keys = listed(row.key for row in found.others)
        raise LeaseTableError(
            f"The {table} has the leases of stream {_named(other)} ({keys}), and this application "
            f"reads stream {_named(stream)}: each would overwrite the other's checkpoints. "
            f"{_NOTHING} {_OTHER_TABLE} If the application is to read {stream.name!r} in place of "
            f"{other.name!r} from now on, stop all workers and delete the table: all shards are "
            "then read from the initial position."
        )
    if found.contradicted:
        row, why = found.contradicted[0]
        keys = listed(row.key for row, _ in found.contradicted)
        raise LeaseTableError(
            f"The {table} has leases that name no stream, as those of a Java KCL ({keys}), and "
            f"that are not of stream {_named(stream)}, which this application reads. Of {row.key}: "
            f"{why}. {_NOTHING} If another application reads another stream by this table: "
            f"{_OTHER_TABLE[0].lower()}{_OTHER_TABLE[1:]} If the stream was deleted and made anew: "
            "stop all workers and delete the table; all shards are then read from the initial "
            "position."
        )


def _named(stream: StreamMark) -> str:
    """Return a stream's name, place and age, for an error."""
    name = f"{stream.name!r} of account {stream.account} in {stream.region}"
    if not stream.created_ms:
        return name
    created = datetime.fromtimestamp(stream.created_ms / 1000, timezone.utc)
    return f"{name} (created at {created.isoformat()})"


# --- Tables of one stream, and of several


def require_several_streams(scan: TableScan, table: str) -> None:
    """Raise `LeaseTableError` for a table of an application that reads one stream, or half of it.

    ``table``: the table's name and place.
    """
    _require_whole(scan, table)
    one = scan.single_stream
    if (one.leases or one.broken) and not scan.several_streams.leases:
        raise LeaseTableError(
            f"The {table} has the leases of an application that reads a single stream: their keys "
            "name no stream. A Java KCL would not see them in an application of several streams, "
            "and would begin each stream at its initial position, beside the old rows. No row was "
            f"written. {_WAY_OVER.format('several')}"
        )


def require_single_stream(scan: TableScan, table: str) -> None:
    """Raise `LeaseTableError` for a table of an application that reads several streams."""
    _require_whole(scan, table)
    several = scan.several_streams
    one = scan.single_stream
    if (several.leases or several.broken) and not one.leases and not one.broken:
        names = sorted({lease.stream.name for lease in several.leases if lease.stream})[:5]
        raise LeaseTableError(
            f"The {table} has the leases of an application that reads several streams "
            f"({', '.join(names)}): their keys name the stream. A Java KCL would not see them in "
            "an application of one stream, and would begin at its initial position, beside the old "
            f"rows. No row was written. {_WAY_OVER.format('single')}"
        )


def _require_whole(scan: TableScan, table: str) -> None:
    if scan.is_converting:
        raise LeaseTableError(
            f"The {table} is being converted by `sparkinesis convert-leases`, or the command was "
            "cut short. Some leases have no row of the new kind yet, and their shards would be "
            "read from elsewhere. Run the command again with the same options; then start the "
            "workers."
        )
