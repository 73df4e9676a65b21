"""The writes by which a worker acquires leases, or gives them to others as the leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from sparkinesis.errors import LeaseTableUnavailableError, ServiceError, SparkinesisError
from sparkinesis.events import (
    HandoffRequested,
    LeaseAssigned,
    LeaseOrigin,
    LeaseTaken,
    Listener,
)
from sparkinesis.lease.leading.moves import Move
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.row_problems import RowProblems
from sparkinesis.lease.rules.taker import still_asked
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batch import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import LeaseChangedError

_log = logging.getLogger(__name__)

Origin: TypeAlias = tuple[LeaseOrigin, str | None, float | None]
"""Where a lease comes from, its previous owner, and the seconds for which that one was silent."""
OriginOf: TypeAlias = Callable[[Lease, Mapping[str, str | None]], Origin]
"""Tells where a lease comes from, given the leases that were asked for before."""


class Acquisitions:
    """Acquires leases, and remembers those of which the worker has no answer. For one thread."""

    def __init__(
        self,
        table: LeaseTable,
        renewer: LeaseRenewer,
        worker_id: str,
        *,
        row_problems: RowProblems,
        tell: Listener,
    ) -> None:
        self._table = table
        self._renewer = renewer
        self._worker_id = worker_id
        self._row_problems = row_problems
        self._tell = tell
        self.asked: dict[str, str | None] = {}
        """Leases that this worker has requested or tried to take, but does not hold yet, and their
        previous owners."""
        self.is_in_doubt = False
        """True if a failed write to one of these leases may have taken effect nevertheless."""

    def note_scan(self, leases: Iterable[Lease], *, is_consistent: bool) -> None:
        """Forget the requests that are over by a scan of the table."""
        self.is_in_doubt = False
        self.asked = still_asked(self.asked, leases, self._worker_id, is_consistent=is_consistent)

    def take(
        self, rows: Iterator[Lease], need: int, size: int, token: int, origin: OriginOf
    ) -> None:
        """Take rows until ``need`` of them are held, at most ``size`` in a call.

        token: the least fencing token. Raises what `LeaseTable` does, after the batch that failed.

        A worker that starts takes a thousand leases while it begins to read those that it has: one
        by one, each would wait for the threads that read.
        """
        while need > 0 and (batch := list(islice(rows, min(need, size)))):
            need -= self._take_batch(batch, token, origin)

    def _take_batch(self, rows: Sequence[Lease], token: int, origin: OriginOf) -> int:
        """Take these leases; return the number of those that no other worker was faster to take."""
        before = self._note_requests(rows)
        results = self._renewer.acquire(rows, token)
        taken = 0
        trouble: SparkinesisError | None = None
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Lease):
                taken += 1
                del self.asked[row.key]
                came = origin(row, before)
                self._tell(LeaseTaken(row.key, row.shard_id, *came, str(result.checkpoint)))
            else:
                trouble = self._note_failure(row, result, before) or trouble
        if trouble is not None:
            raise trouble
        return taken

    def assign(
        self, moves: Iterable[Move], expired: Collection[str], is_leaving: Callable[[], bool]
    ) -> list[Lease]:
        """Write what this worker assigns as the leader; return the leases that it takes itself.

        A row that has changed since the scan is left alone; the next scan shows it as it is.
        """
        mine: list[Lease] = []
        writes: list[tuple[Move, Update]] = []
        for move in moves:
            row, to = move.lease, move.to
            is_vacant = row.actual_owner is None or row.key in expired
            if is_vacant and to == self._worker_id:
                mine.append(row)
            elif is_vacant or row.checkpoint_owner is not None:
                writes.append((move, requests.assign_vacant(row, to)))
            else:
                writes.append((move, requests.initiate_handoff(row, to)))
        trouble: SparkinesisError | None = None
        while writes and not is_leaving():
            batch, writes = writes[:BATCH], writes[BATCH:]
            results = self._renewer.batching.write([update for _, update in batch])
            for (move, _), result in zip(batch, results, strict=True):
                row = move.lease
                if isinstance(result, Lease):
                    owner = result.checkpoint_owner
                    self._tell(LeaseAssigned(row.key, row.shard_id, move.to, owner))
                elif not isinstance(result, LeaseChangedError):
                    trouble = result
        if trouble is not None:
            raise trouble
        return mine

    def request(self, row: Lease) -> None:
        """Request a lease. If its row cannot be written, this worker goes on with the others."""
        before = self._note_requests([row])
        result = self._table.try_write(requests.initiate_handoff(row, self._worker_id))
        if isinstance(result, Lease):
            self._tell(HandoffRequested(row.key, row.shard_id, str(row.owner)))
        elif trouble := self._note_failure(row, result, before):
            raise trouble

    def _note_requests(self, rows: Sequence[Lease]) -> dict[str, str | None]:
        """Note that rows are to be written; return the notes before.

        If the answer of the write is lost, the table may name this worker as owner, and without the
        note the lease would be left to expire.
        """
        before = self.asked
        self.asked = {**before, **{row.key: row.owner for row in rows if row.key not in before}}
        return before

    def _note_failure(
        self, row: Lease, error: SparkinesisError, before: Collection[str]
    ) -> SparkinesisError | None:
        """Note that a row was not written; return the error if it is no matter of this row alone.

        A problem with one row, such as its size, does not keep this worker from the others.
        """
        if isinstance(error, LeaseChangedError):
            if row.key not in before:
                del self.asked[row.key]
            _log.debug("The lease %s changed before it could be written", row.key)
            return None
        self.is_in_doubt = True
        if isinstance(error, ServiceError) and not isinstance(error, LeaseTableUnavailableError):
            self._row_problems.report_refusal(row.key, error)
            return None
        return error
