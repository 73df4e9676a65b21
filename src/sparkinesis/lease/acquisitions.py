"""The writes by which a worker acquires leases, or gives them to others as the leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from sparkinesis.errors import (
    LeaseTableError,
    LeaseTableUnavailableError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.events import (
    HandoffRequested,
    LeaseAssigned,
    LeaseTaken,
    LeaseUnwritable,
    Listener,
)
from sparkinesis.lease.assignment.moves import Move
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.taker import Origin, still_asked
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.statements import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.address import StreamMark

_log = logging.getLogger(__name__)


class TakeTerms(msgspec.Struct, frozen=True):
    """What holds for all leases that a worker takes after one scan."""

    size: int
    """The most leases in a call."""
    token: int
    """The fencing token of each, if its row has no larger one."""
    origin: Callable[[Lease, Mapping[str, str | None]], Origin]
    """Returns where a lease comes from, given the leases that were asked for before."""
    mark: StreamMark | None
    """The only stream of the application, which rows get that name none; None: there are
    several."""


class Acquisitions:
    """Acquires leases, and remembers the writes without an answer. For one thread."""

    def __init__(
        self,
        table: LeaseTable,
        renewer: LeaseRenewer,
        worker_id: str,
        clock: Callable[[], float],
        publish: Listener,
    ) -> None:
        self._table = table
        self._renewer = renewer
        self._worker_id = worker_id
        self._clock = clock
        self._publish = publish
        self.asked: dict[str, str | None] = {}
        """Leases that this worker has requested or tried to take, but does not hold yet, and their
        previous owners."""
        self.is_in_doubt = False
        """True if a failed write to one of these leases may have taken effect nevertheless."""
        self._refused: dict[str, str] = {}
        """Why the service refuses to write a row, as published last, by lease key."""

    def after_scan(self, leases: Iterable[Lease], *, is_consistent: bool) -> None:
        """Forget the requests that are over by a scan of the table."""
        self.is_in_doubt = False
        self.asked = still_asked(self.asked, leases, self._worker_id, is_consistent=is_consistent)

    def take(self, rows: Iterator[Lease], need: int, terms: TakeTerms) -> None:
        """Take rows until ``need`` of them are held.

        Raises what `LeaseTable` does, after the batch that failed.

        A worker that starts takes a thousand leases while it begins to read those that it has: one
        by one, each would wait for the threads that read.
        """
        while need > 0 and (batch := list(islice(rows, min(need, terms.size)))):
            need -= self._take_batch(batch, terms)

    def _take_batch(self, rows: Sequence[Lease], terms: TakeTerms) -> int:
        """Take these leases; return the number of those that no other worker was faster to take."""
        before = self._remember(rows)
        # The failover time counts from before the write: no worker sees it earlier.
        acquired_at = self._clock()
        updates = [requests.take(row, self._worker_id, terms.token, terms.mark) for row in rows]
        self._renewer.own_writes.add(updates)
        results = self._renewer.batching.write(updates)
        for result in results:
            if isinstance(result, Lease):
                self._renewer.hold(result, acquired_at)
        taken = 0
        trouble: SparkinesisError | None = None
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Lease):
                taken += 1
                del self.asked[row.key]
                origin = terms.origin(row, before)
                self._publish(LeaseTaken(row.key, row.shard_id, *origin, str(result.checkpoint)))
            else:
                trouble = self._handle_failure(row, result, before) or trouble
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
                    self._publish(LeaseAssigned(row.key, row.shard_id, move.to, owner))
                elif not isinstance(result, LeaseChangedError):
                    trouble = result
        if trouble is not None:
            raise trouble
        return mine

    def request(self, row: Lease) -> None:
        """Request a lease. If its row cannot be written, the other leases are not affected."""
        before = self._remember([row])
        result = self._table.try_write(requests.initiate_handoff(row, self._worker_id))
        if isinstance(result, Lease):
            self._publish(HandoffRequested(row.key, row.shard_id, str(row.owner)))
        elif trouble := self._handle_failure(row, result, before):
            raise trouble

    def withdraw(self, given: Collection[str]) -> None:
        """Withdraw the requests for leases that are not held yet; release the leases in ``given``.

        Leaves alone what another worker owns, and what this one holds by then. A row that cannot be
        read does not keep the others waiting; its error is raised at the end.
        """
        trouble: LeaseTableError | None = None
        for key in self.asked.keys() | given:
            try:
                row = self._table.get(key)
                while (
                    row is not None
                    and row.owner == self._worker_id
                    and key not in self._renewer.held()
                ):
                    row = self._withdraw(row)
            except LeaseTableError as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def _withdraw(self, row: Lease) -> Lease | None:
        """Withdraw a request, or release the lease; return the row if that is still to be done."""
        is_asked = row.checkpoint_owner is not None
        if is_asked:
            update = requests.withdraw_handoff(row)
        else:
            update = requests.release(row, self._worker_id)
        try:
            self._table.write(update)
        except LeaseChangedError as changed:
            now = changed.row
            # A counter that moved while the owner stayed: another process, started anew with this
            # worker's id, has taken the lease.
            return now if is_asked or (now is not None and now.counter == row.counter) else None
        return None

    def _remember(self, rows: Sequence[Lease]) -> dict[str, str | None]:
        """Remember that rows are to be written; return those that were asked for before.

        If the answer of the write is lost, the table may name this worker as owner, and then
        the lease would be left to expire.
        """
        before = self.asked
        self.asked = {**before, **{row.key: row.owner for row in rows if row.key not in before}}
        return before

    def _handle_failure(
        self, row: Lease, error: SparkinesisError, before: Collection[str]
    ) -> SparkinesisError | None:
        """Remember that a row was not written; return the error unless it concerns this row alone.

        A problem with one row, such as its size, does not keep this worker from the others.
        """
        if isinstance(error, LeaseChangedError):
            if row.key not in before:
                del self.asked[row.key]
            _log.debug("The lease %s changed before it could be written", row.key)
            return None
        self.is_in_doubt = True
        if isinstance(error, ServiceError) and not isinstance(error, LeaseTableUnavailableError):
            if self._refused.get(row.key) != (why := str(error)):
                self._publish(LeaseUnwritable(row.key, why))
            self._refused[row.key] = why
            return None
        return error
