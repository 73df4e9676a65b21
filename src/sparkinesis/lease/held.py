"""A lease that this worker holds: the writes to its row, and whether it may still write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparkinesis.errors import LeaseLostError, LeaseTableError, SparkinesisError
from sparkinesis.events import LeaseEnd, LeaseEnded, Listener
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.requests import Update
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import (
    LeaseChangedError,
    LeaseLoss,
    OwnWrites,
    loss_to,
    resolve_conflict,
)
from sparkinesis.stream.position import AfterRecord, AtTimestamp

KNOWN_EVERY_MS = 300_000
"""Arrival times are written only if they are this much newer than those in the row."""

MAX_TRIES = 10
"""The most tries of one write before giving up. Each handoff request or withdrawal costs a try."""


class HeldLease:
    """A lease from the moment when this worker acquires it until it is lost or released.

    Its identity serves as the KCL's concurrency token: a shard that is lost and acquired again has
    another `HeldLease`, so that a processor of the first cannot checkpoint under the second. Safe
    to share between threads: a lock serializes the writes, so that each carries the counter that
    the previous one left.
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
        tell: Listener,
        own_writes: OwnWrites,
    ) -> None:
        self.throughput_kbps: float | None = None
        """The measured rate, set by the worker; stored with each write of the owner."""
        self.known: tuple[ExtendedSequenceNumber, AfterRecord | AtTimestamp] | None = None
        """A checkpoint and the arrival times known at it; set by the reader, and stored with some
        renewals."""
        self.key = lease.key
        self.shard_id = lease.shard_id
        self.stream = lease.stream
        self._lease = lease
        self._table = table
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._clock = clock
        self._tell = tell
        self._own_writes = own_writes
        self._since = since
        self._renewed_at = since
        self._sent_at = since
        self._lost: LeaseLoss | None = None
        self._trouble: str | None = None
        """The error of the last write; None once a write has succeeded."""
        self._unanswered: list[tuple[float, Update]] = []
        self._lock = threading.Lock()
        self._ending = threading.Lock()
        """Guards `_lost`, which a thread may set while another one waits for a write's answer."""

    @property
    def lease(self) -> Lease:
        """The row as last known."""
        return self._lease

    @property
    def renewed_at(self) -> float:
        """The time, by the renewer's clock, at which the last successful write was sent."""
        return self._renewed_at

    @property
    def handoff_to(self) -> str | None:
        """The worker that requested this lease and waits for its release."""
        lease = self._lease
        asked = lease.checkpoint_owner == self._worker_id and lease.owner != self._worker_id
        return lease.owner if asked else None

    @property
    def lost_because(self) -> str | None:
        """The reason why the lease is no longer held; None while it is held, as far as is known."""
        return self._lost.why if self._lost else None

    @property
    def is_lost_to_duplicate(self) -> bool:
        """True if the lease was lost to another process with the same worker id."""
        return self._lost is not None and self._lost.to_duplicate_worker

    def is_held(self) -> bool:
        """Return True if the lease is not lost or released, and renewed within the failover time.

        The failover time starts when the renewal was sent: no worker can have seen it earlier.
        """
        return self._lost is None and self._clock() - self._renewed_at <= self._failover_time

    def require_held(self, doing: str) -> None:
        """Raise `LeaseLostError`, which names ``doing``, if the lease is not held."""
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
        """Write a checkpoint: everything up to ``at`` is done. See `requests.checkpoint`.

        Writes nothing if the row is already beyond ``at``: an earlier checkpoint landed, but its
        answer was lost.
        Raises `LeaseLostError` (not held, or lost because the write was refused) and
        `LeaseTableUnavailableError`, after which the caller may try again.
        """
        if moved_ms is not None:
            self._forget_arrivals()
        self._write(
            "checkpoint",
            lambda lease: (
                None
                if _is_behind(at, lease)
                else requests.checkpoint(lease, at, timestamp_ms, known, moved_ms)
            ),
        )

    def move(self, at: ExtendedSequenceNumber, moved_ms: int) -> None:
        """Write a checkpoint that may lie before the last one. Raises what `checkpoint` raises.

        ``moved_ms``: the service's clock (epoch ms).
        """
        self._forget_arrivals()
        self._write("reset", lambda lease: requests.checkpoint(lease, at, moved_ms=moved_ms))

    def fix_instant(self, timestamp_ms: int) -> None:
        """Store the instant that LATEST means. Raises what `checkpoint` raises."""
        self._write("note an instant", lambda lease: requests.fix_instant(lease, timestamp_ms))

    def prepare(self, pending: PendingCheckpoint) -> None:
        """Write the first phase of a two-phase checkpoint. Raises what `checkpoint` raises."""
        self._write(
            "prepare a checkpoint",
            lambda lease: (
                None if _is_behind(pending.at, lease) else requests.prepare(lease, pending)
            ),
        )

    def drop_pending(self) -> None:
        """Remove a prepared checkpoint, if there is one. Raises what `checkpoint` raises."""
        self._write(
            "drop a prepared checkpoint",
            lambda lease: None if lease.pending is None else requests.prepare(lease, None),
        )

    def add_children(self, child_ids: Sequence[str]) -> None:
        """Store the ids of the shard's children. Raises what `checkpoint` raises."""
        with self._lock:
            self.require_held("add children")
            try:
                row = self._table.write(requests.add_children(self._lease, child_ids))
            except LeaseChangedError as refused:
                self._reconcile(refused.row)
                raise self._lost_error("add children") from None
            # Adopt only the child ids: this write does not prove that this worker still owns the
            # lease.
            self._lease = requests.add_children(self._lease, row.child_ids).after

    def release(self, reason: LeaseEnd = LeaseEnd.GIVEN_UP) -> None:
        """Release the lease to the worker that requested it, or to any worker.

        The object is then no longer usable. Writes nothing if the lease is not held. Raises
        `LeaseTableError` and `LeaseTableUnavailableError`; the lease then expires before another
        worker takes it. The event `LeaseEnded` has the error, too.
        """
        with self._lock:
            self.lose_if_expired()
            # End before the write: once others may read the shard, no more writes are allowed.
            released = LeaseLoss(f"this worker released it: {reason.value}", reason)
            if not self._end(released):
                return
            try:
                after = self._write_release()
            except SparkinesisError as error:
                self._tell_end(released, str(error))
                raise
            if isinstance(after, LeaseLoss):
                self._tell_end(after)
            else:
                self._tell_end(replace(released, to=after.owner))

    def _write_release(self) -> Lease | LeaseLoss:
        """Write the release; return the row, or how the lease was lost before."""
        row = self._lease
        for _ in range(MAX_TRIES):
            try:
                return self._table.write(self._release_update(row))
            except LeaseChangedError as refused:
                now = refused.row
                if now is None or now.actual_owner != self._worker_id or now.owner is None:
                    return loss_to(now)
                # A moment ago a worker requested the lease, or withdrew its request: workers
                # that end at the same time do both.
                row = now
        raise self._refused_error("release the lease")

    def lose(self, why: str, reason: LeaseEnd = LeaseEnd.GIVEN_UP) -> None:
        """Mark the lease as lost: another worker owns it, or may own it. Writes nothing."""
        self._lose(LeaseLoss(why, reason))

    def lose_if_expired(self) -> None:
        """Mark the lease as lost if it was not renewed within the failover time."""
        if not self.is_held():
            self._lose(LeaseLoss(self._why_expired, LeaseEnd.EXPIRED), self._trouble)

    def observe(self, row: Lease) -> None:
        """Adopt a handoff request that a scan of the table shows."""
        if self._lock.acquire(blocking=False):
            try:
                asked = row.checkpoint_owner == self._worker_id and row.owner != self._worker_id
                if asked and row.counter == self._lease.counter:
                    self._lease = row
            finally:
                self._lock.release()

    def begin_renewal(self) -> Update | None:
        """Return the renewal to send now, and hold the lock until `end_renewal`. For the renewer.

        Returns None, without holding the lock, if the lease is not held, or if another write is in
        flight, which renews it too.
        """
        if not self._lock.acquire(blocking=False):
            return None
        if not self.is_held():
            self._lock.release()
            return None
        return self._renewal()

    def settle_renewal(self, update: Update, result: Lease | SparkinesisError) -> Update | None:
        """Process a renewal's result; return a new renewal to send in its place, or None.

        For the renewer.
        """
        if isinstance(result, Lease):
            self._landed(result)
        elif isinstance(result, LeaseChangedError):
            if self._reconcile(result.row) and self.is_held():
                return self._renewal()
        else:
            # Whatever the error, an earlier try of the same call may have succeeded unanswered.
            self._unanswered.append((self._sent_at, update))
            self._trouble = str(result)
        return None

    def end_renewal(self) -> None:
        """Release the lock that `begin_renewal` acquired."""
        self._lock.release()

    def _renewal(self) -> Update:
        return self._to_send(requests.renew(self._lease, known=self._arrival_news()))

    def _arrival_news(self) -> AfterRecord | AtTimestamp | None:
        """Return the arrival times known at the row's checkpoint, if they are worth a write."""
        if self.known is None:
            return None
        at, known = self.known
        if at != self._lease.checkpoint:
            return None
        stored_ms = _clear_until(self._lease.known) or self._lease.timestamp_ms or 0
        return known if (_clear_until(known) or 0) >= stored_ms + KNOWN_EVERY_MS else None

    def _forget_arrivals(self) -> None:
        """Drop the known arrival times: they may be wrong at the new position.

        Two positions may have the same checkpoint: every instant is stored as ``AT_TIMESTAMP``.
        """
        self.known = None

    def _to_send(self, update: Update) -> Update:
        """Return the update with the rate, to be sent now."""
        self._sent_at = self._clock()
        self._own_writes.note([update])
        rate = self.throughput_kbps
        return update if rate is None else requests.with_throughput(update, rate)

    def _release_update(self, row: Lease) -> Update:
        if row.owner is not None and row.owner != self._worker_id:
            return requests.assign(row, row.owner)
        return requests.evict(row)

    def _write(self, doing: str, build: Callable[[Lease], Update | None]) -> None:
        """Write the update that ``build`` returns for the known row.

        If ``build`` returns None, write nothing.
        """
        with self._lock:
            for _ in range(MAX_TRIES):
                self.require_held(doing)
                update = build(self._lease)
                if update is None:
                    return
                update = self._to_send(update)
                try:
                    self._landed(self._table.write(update))
                except LeaseChangedError as refused:
                    if not self._reconcile(refused.row):
                        raise self._lost_error(doing) from None
                except SparkinesisError as error:
                    # Whatever the error, an earlier try may have succeeded unanswered.
                    self._unanswered.append((self._sent_at, update))
                    self._trouble = str(error)
                    raise
                else:
                    return
            raise self._refused_error(doing)

    def _landed(self, row: Lease) -> None:
        self._lease = row
        self._renewed_at = self._sent_at
        self._trouble = None
        self._unanswered.clear()

    def _reconcile(self, row: Lease | None) -> bool:
        """Adopt the row of a refused write; return True if this worker still owns the lease."""
        unanswered = [update for _, update in self._unanswered]
        verdict = resolve_conflict(self._lease, row, self._worker_id, unanswered)
        if isinstance(verdict, LeaseLoss):
            self._lose(verdict)
            return False
        if verdict.landed is not None:
            self._renewed_at = max(
                self._renewed_at,
                *(sent for sent, update in self._unanswered if update is verdict.landed),
            )
            self._unanswered.clear()
        self._lease = verdict.row
        return True

    def _lose(self, verdict: LeaseLoss, error: str | None = None) -> None:
        if self._end(verdict):
            self._tell_end(verdict, error)

    def _end(self, verdict: LeaseLoss) -> bool:
        """Mark the lease as ended; return False if it had ended before."""
        with self._ending:
            if self._lost is not None:
                return False
            self._lost = verdict
            return True

    def _tell_end(self, verdict: LeaseLoss, error: str | None = None) -> None:
        self._tell(
            LeaseEnded(
                self.key,
                self.shard_id,
                verdict.reason,
                verdict.why,
                verdict.to,
                self._clock() - self._since,
                str(self._lease.checkpoint),
                error,
            )
        )

    @property
    def _why_expired(self) -> str:
        return (
            f"it could not be renewed for {self._failover_time:g} s, and another worker may own it"
        )

    def _refused_error(self, doing: str) -> LeaseTableError:
        return LeaseTableError(
            f"Cannot {doing} for shard {self._lease.shard_name} in the {self._table}: the server "
            "refuses the write, although the row meets the write's condition. Nothing was "
            "written. Check which server answers there, and that its conditional writes work."
        )

    def _lost_error(self, doing: str) -> LeaseLostError:
        why = self.lost_because or self._why_expired
        return LeaseLostError(
            f"Cannot {doing} for shard {self._lease.shard_name} in the {self._table}: this worker "
            f"no longer holds the lease; {why}. Nothing was written. Stop processing the shard: "
            "the next owner of the lease resumes from its last checkpoint."
        )


def _clear_until(known: AfterRecord | AtTimestamp | None) -> int | None:
    if isinstance(known, AtTimestamp):
        return known.ms
    return None if known is None else known.clear_until


def _is_behind(at: ExtendedSequenceNumber, lease: Lease) -> bool:
    """Return True if ``at`` is a record before the row's checkpoint; sentinels are resets."""
    return not at.is_sentinel and at < lease.checkpoint
