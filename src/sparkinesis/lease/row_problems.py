"""Logs each problem with a row of the lease table once, and not at every scan."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.table.rows import BrokenLease
from sparkinesis.lease.table.table import LeaseTable

_log = logging.getLogger(__name__)


class RowProblems:
    """The problems that one worker has logged; used by one thread at a time."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._broken: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        """The text logged last, by lease key."""

    def report_broken(self, rows: Iterable[BrokenLease]) -> None:
        """Log rows that a scan could not read, and rows that are readable again."""
        found = {row.key: row.why for row in rows}
        for key, why in found.items():
            if self._broken.get(key) != why:
                _log.error(
                    "The lease %s in the %s cannot be read: %s. No worker takes the lease, and the "
                    "children of the shard wait; other shards are not affected. Repair the row, or "
                    "delete it to read the shard from its start again.",
                    key,
                    self._table,
                    why,
                )
        for key in self._broken.keys() - found.keys():
            _log.info("The lease %s in the %s can be read again", key, self._table)
        self._broken = found

    def report_refusal(self, key: str, error: SparkinesisError) -> None:
        """Log a write to a row that the service refuses permanently."""
        if self._refused.get(key) != (why := str(error)):
            _log.error("The lease %s cannot be written and is skipped: %s", key, why)
        self._refused[key] = why
