"""Tells each problem with a row of the lease table once, and not at every scan."""

from __future__ import annotations

from collections.abc import Iterable

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import LeaseReadable, LeaseUnreadable, LeaseUnwritable, Listener
from sparkinesis.lease.table.rows import BrokenLease


class RowProblems:
    """The problems that one worker has told; used by one thread at a time.

    table: the lease table's name and place.
    """

    def __init__(self, table: str, tell: Listener) -> None:
        self._table = table
        self._tell = tell
        self._broken: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        """The text told last, by lease key."""

    def report_broken(self, rows: Iterable[BrokenLease]) -> None:
        """Tell rows that a scan could not read, and rows that are readable again."""
        found = {row.key: row.why for row in rows}
        for key, why in found.items():
            if self._broken.get(key) != why:
                self._tell(LeaseUnreadable(key, self._table, why))
        for key in self._broken.keys() - found.keys():
            self._tell(LeaseReadable(key, self._table))
        self._broken = found

    def report_refusal(self, key: str, error: SparkinesisError) -> None:
        """Tell a write to a row that the service refuses for good."""
        if self._refused.get(key) != (why := str(error)):
            self._tell(LeaseUnwritable(key, why))
        self._refused[key] = why
