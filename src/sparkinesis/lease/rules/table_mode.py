"""The two kinds of lease tables: of an application of one stream, and of several. Pure."""

from __future__ import annotations

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.table.rows import TableScan

_WAY_OVER = (
    "Give this application another table_name. Or stop all workers and run `sparkinesis "
    "convert-leases --to {}`, which gives the rows the other keys and keeps the checkpoints."
)


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
