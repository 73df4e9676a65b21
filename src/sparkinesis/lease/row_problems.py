"""What is wrong with single rows of a lease table, each told once and not at every look."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.table.rows import BrokenLease
from sparkinesis.lease.table.table import LeaseTable

_log = logging.getLogger(__name__)


class RowProblems:
    """Those of one worker; used by one thread at a time."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._broken: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        """By lease key: what was told last."""

    def report_broken(self, rows: Iterable[BrokenLease]) -> None:
        """All those that a look at the table found."""
        found = {row.key: row.why for row in rows}
        for key, why in found.items():
            if self._broken.get(key) != why:
                _log.error(
                    "The lease %s in the %s cannot be read: %s. Nobody takes it, and the shards "
                    "that follow wait; all others go on. Mend the row by hand, or delete it, so "
                    "that the shard is begun anew.",
                    key,
                    self._table,
                    why,
                )
        for key in self._broken.keys() - found.keys():
            _log.info("The lease %s in the %s is not broken any more", key, self._table)
        self._broken = found

    def report_refusal(self, key: str, error: SparkinesisError) -> None:
        """The service does not take a write to this row, and would not take it again."""
        if self._refused.get(key) != (why := str(error)):
            _log.error("The lease %s cannot be written, and is left alone: %s", key, why)
        self._refused[key] = why
