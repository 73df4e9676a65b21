"""One acquisition of a lease by this worker: what may be written under it, and until when."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from sparkinesis.errors import LeaseLostError, LeaseTableError, SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.requests import Update
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError, LeaseLoss, resolve_conflict
from sparkinesis.stream.position import AfterRecord, AtTimestamp

_log = logging.getLogger(__name__)

KNOWN_EVERY_MS = 300_000
"""How much later than what the row tells must be what is known, to be written."""


REFUSALS = 10
"""Tries of one write in a row. A handoff that is asked for, or not any more, costs one each."""


class HeldLease:
    """A lease from the moment that it became this worker's until it is lost or given up.

    Its identity is what the KCL's concurrency token is: a shard that is lost and regained has
    another `HeldLease`, so that a processor left behind by the first cannot checkpoint under the
    second. Safe to share between threads: one lock lets writes happen one after another, so that
    each carries the counter that the one before it left.
    """

    def __init__(
        self,
        lease: Lease,
        table: LeaseTable,
        worker_id: str,
        *,
        failover_time: float,
        clock: Callable[[], float],
        since: float,
    ) -> None:
        self.throughput_kbps: float | None = None
        """Set by whoever measures it; written with each write of the owner's."""
        self.known: tuple[ExtendedSequenceNumber, AfterRecord | AtTimestamp] | None = None
        """What a reader knows of arrival times at a checkpoint; set by the reader, and written with
        a renewal now and then."""
        self.key = lease.key
        self.shard_id = lease.shard_id
        self._lease = lease
        self._table = table
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._clock = clock
        self._renewed_at = since
        self._sent_at = since
        self._lost: LeaseLoss | None = None
        self._unanswered: list[tuple[float, Update]] = []
        self._lock = threading.Lock()

    @property
    def lease(self) -> Lease:
        """The row as last known."""
        return self._lease

    @property
    def renewed_at(self) -> float:
        """When, by the clock of its renewer, the last write was sent that is known to be done."""
        return self._renewed_at

    @property
    def handoff_to(self) -> str | None:
        """The worker that asked for this lease, and waits for it to be released."""
        lease = self._lease
        asked = lease.checkpoint_owner == self._worker_id and lease.owner != self._worker_id
        return lease.owner if asked else None

    @property
    def lost_because(self) -> str | None:
        """Why this is held no more; None while it is, as far as is known."""
        return self._lost.why if self._lost else None

    @property
    def is_lost_to_duplicate(self) -> bool:
        """Whether it was lost to another process with the same worker id."""
        return self._lost is not None and self._lost.to_duplicate_worker

    def is_held(self) -> bool:
        """Whether it is neither lost nor given up, and was renewed within the failover time.

        Time is counted from before the write was sent: nobody can have seen it any earlier.
        """
        return self._lost is None and self._clock() - self._renewed_at <= self._failover_time

    def require_held(self, doing: str) -> None:
        """Raise `LeaseLostError` if it is not held: it is too late for ``doing``."""
        if not self.is_held():
            raise self._lost_error(doing)

    def checkpoint(
        self,
        at: ExtendedSequenceNumber,
        timestamp_ms: int | None = None,
        *,
        known: AfterRecord | None = None,
        moved_ms: int | None = None,
    ) -> None:
        """Everything up to ``at`` is done; see `requests.checkpoint` for the rest.

        Nothing is written where the row is beyond that already, by a checkpoint whose answer was
        lost. Raises `LeaseLostError` (not held; or refused, then it is lost), and
        `LeaseTableUnavailableError`, after which nothing has changed here: try again.
        """
        if moved_ms is not None:
            self._forget_silence()
        self._write(
            "checkpoint",
            lambda lease: (
                None
                if _is_behind(at, lease)
                else requests.checkpoint(lease, at, timestamp_ms, known, moved_ms)
            ),
        )

    def move(self, at: ExtendedSequenceNumber, moved_ms: int) -> None:
        """A checkpoint that may lie before the last one, ``moved_ms``. Raises as `checkpoint`."""
        self._forget_silence()
        self._write("reset", lambda lease: requests.checkpoint(lease, at, moved_ms=moved_ms))

    def fix_instant(self, timestamp_ms: int) -> None:
        """Note what instant the checkpoint LATEST stands for. Raises as `checkpoint` does."""
        self._write("note an instant", lambda lease: requests.fix_instant(lease, timestamp_ms))

    def prepare(self, pending: PendingCheckpoint) -> None:
        """The first phase of a checkpoint in two. As `checkpoint` in all else."""
        self._write(
            "prepare a checkpoint",
            lambda lease: (
                None if _is_behind(pending.at, lease) else requests.prepare(lease, pending)
            ),
        )

    def add_children(self, child_ids: Sequence[str]) -> None:
        """What the shard's end announced, for other workers to see. Raises as `checkpoint` does."""
        with self._lock:
            self.require_held("add children")
            try:
                row = self._table.write(requests.add_children(self._lease, child_ids))
            except LeaseChangedError as refused:
                self._reconcile(refused.row)
                raise self._lost_error("add children") from None
            # Not the whole row: this write is no proof that the lease is still this worker's.
            self._lease = requests.add_children(self._lease, row.child_ids).after

    def release(self) -> None:
        """Give it up: to whoever asked for it, else to anybody. Nothing is held afterwards.

        A lease that is held no more is left as it is. Raises `LeaseTableUnavailableError`: then it
        goes to another worker once its time has run out.
        """
        with self._lock:
            if not self.is_held():
                self._end(LeaseLoss("it was given up"))
                return
            # Before the write: once others may read the shard, nothing may be written under this.
            self._end(LeaseLoss("it was given up"))
            try:
                self._table.write(self._letting_go(self._lease))
            except LeaseChangedError as refused:
                row = refused.row
                if row is None or row.actual_owner != self._worker_id or row.owner is None:
                    return
                # Somebody asked for it a moment ago.
                try:
                    self._table.write(self._letting_go(row))
                except LeaseChangedError:
                    return

    def lose(self, why: str) -> None:
        """It is another worker's, or may be. Nothing is written."""
        self._end(LeaseLoss(why))

    def observe(self, row: Lease) -> None:
        """Take note of a handoff that a scan of the table shows."""
        if self._lock.acquire(blocking=False):
            try:
                asked = row.checkpoint_owner == self._worker_id and row.owner != self._worker_id
                if asked and row.counter == self._lease.counter:
                    self._lease = row
            finally:
                self._lock.release()

    def begin_renewal(self) -> Update | None:
        """For the renewer: the renewal to send now, with the lock held until `end_renewal`.

        None without the lock, if another write is on its way (which shows life just as well), or if
        this is held no more.
        """
        if not self._lock.acquire(blocking=False):
            return None
        if not self.is_held():
            self._lock.release()
            return None
        return self._renewal()

    def settle_renewal(self, update: Update, result: Lease | SparkinesisError) -> Update | None:
        """For the renewer: what became of it; the renewal to send instead, if there is one."""
        if isinstance(result, Lease):
            self._landed(result)
        elif isinstance(result, LeaseChangedError):
            if self._reconcile(result.row) and self.is_held():
                return self._renewal()
        else:
            # Whatever the error: an earlier try of the same call may have landed unanswered.
            self._unanswered.append((self._sent_at, update))
        return None

    def end_renewal(self) -> None:
        self._lock.release()

    def _renewal(self) -> Update:
        self._sent_at = self._clock()
        return self._with_rate(requests.renew(self._lease, known=self._news()))

    def _news(self) -> AfterRecord | AtTimestamp | None:
        """What is known of the row's checkpoint, if it is worth writing."""
        if self.known is None:
            return None
        at, known = self.known
        if at != self._lease.checkpoint:
            return None
        told_ms = _clear_until(self._lease.known) or self._lease.timestamp_ms or 0
        return known if (_clear_until(known) or 0) >= told_ms + KNOWN_EVERY_MS else None

    def _forget_silence(self) -> None:
        """What was known at the old place may be false at the new one, even if both have one name.

        ``AT_TIMESTAMP`` is the name of every instant.
        """
        self.known = None

    def _with_rate(self, update: Update) -> Update:
        rate = self.throughput_kbps
        return update if rate is None else requests.with_throughput(update, rate)

    def _letting_go(self, row: Lease) -> Update:
        if row.owner is not None and row.owner != self._worker_id:
            return requests.assign(row, row.owner)
        return requests.evict(row)

    def _write(self, doing: str, build: Callable[[Lease], Update | None]) -> None:
        """``build``: None where the row, as it is known by then, leaves nothing to write."""
        with self._lock:
            for _ in range(REFUSALS):
                self.require_held(doing)
                update = build(self._lease)
                if update is None:
                    return
                update = self._with_rate(update)
                self._sent_at = self._clock()
                try:
                    self._landed(self._table.write(update))
                except LeaseChangedError as refused:
                    if not self._reconcile(refused.row):
                        raise self._lost_error(doing) from None
                except SparkinesisError:
                    # Whichever: an earlier try of the same call may have landed unanswered.
                    self._unanswered.append((self._sent_at, update))
                    raise
                else:
                    return
            raise LeaseTableError(
                f"Cannot {doing} for shard {self.shard_id} in the {self._table}: it refuses the "
                "write, although the row is as the write demands. Nothing was written. See what "
                "server answers there, and whether its conditional writes work."
            )

    def _landed(self, row: Lease) -> None:
        self._lease = row
        self._renewed_at = self._sent_at
        self._unanswered.clear()

    def _reconcile(self, row: Lease | None) -> bool:
        """Learn from a refusal. Whether the lease is still this worker's, to be written again."""
        unanswered = [update for _, update in self._unanswered]
        verdict = resolve_conflict(self._lease, row, self._worker_id, unanswered)
        if isinstance(verdict, LeaseLoss):
            self._end(verdict)
            return False
        if verdict.landed is not None:
            self._renewed_at = max(
                self._renewed_at,
                *(sent for sent, update in self._unanswered if update is verdict.landed),
            )
            self._unanswered.clear()
        self._lease = verdict.row
        return True

    def _end(self, verdict: LeaseLoss) -> None:
        if self._lost is None:
            self._lost = verdict
            _log.info("Lease %s of the %s ended: %s.", self.key, self._table, verdict.why)

    def _lost_error(self, doing: str) -> LeaseLostError:
        why = self.lost_because or (
            f"it could not be renewed for {self._failover_time:g} s, and may be another worker's"
        )
        return LeaseLostError(
            f"Cannot {doing} for shard {self.shard_id} in the {self._table}: the lease is held no "
            f"more; {why}. Nothing was written. Stop processing the shard: whoever has the lease "
            "goes on from its last checkpoint."
        )


def _clear_until(known: AfterRecord | AtTimestamp | None) -> int | None:
    if isinstance(known, AtTimestamp):
        return known.ms
    return None if known is None else known.clear_until


def _is_behind(at: ExtendedSequenceNumber, lease: Lease) -> bool:
    """Whether the row's checkpoint is beyond a record's place; a name is where to reset to."""
    return not at.is_sentinel and at < lease.checkpoint
