"""A lease that this worker holds: the writes to its row, and what a refused write means."""

# Every write of the owner expects the counter and the owners of the row as this worker knows it,
# and raises the counter. So a worker that lost the lease without knowing so checkpoints nothing:
# the row fences it. What this costs is that a refusal, or an answer that is lost, leaves the worker
# in doubt about its own row. `_settle` and `_reconcile` decide by the row that the refusal shows:
#
# - Another owner, or no row: the lease is lost.
# - The known counter: a handoff was requested or withdrawn. The write is built anew and sent again.
# - The counter of a write of this worker whose answer never came: that write was made. It renewed
#   the lease when *it* was sent, not when this one was; `renewed_at` is set to that, and never
#   back. Writes without an answer are kept whatever error their call ended with: credentials that
#   ran out between two tries once hid that the first try had landed, and the worker took its own
#   counter for a second worker's and ended.
# - Any other counter: another process of the same worker id writes, or the lease was given back
#   after a reset; the fencing token shows which (`resolve_conflict`).
#
# A KCL takes each counter that is one higher for its own. That is simpler, and leaves a second
# worker of the same id unnoticed while both read the shard.
#
# A checkpoint does not go back. If the answer of one was lost, the record processor is told that it
# failed and gets its records again; it may then checkpoint an earlier record, and the row that the
# refusal shows is still this worker's. Nothing is written then (`_is_behind`): what lies before the
# row's checkpoint is done. Sentinels are resets, and do go back.
#
# `confirm` is for writes elsewhere that cannot be taken back, such as the leases of children. A
# worker that did not know of a reset created children's leases of which the reset did not know, and
# which began before the position that it gave.

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, SparkinesisError
from sparkinesis.events import LeaseEnd, Listener
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.rules.lease_start import arrival_news
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.calls import lease_lost, write_refused
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import (
    LeaseChangedError,
    LeaseLoss,
    OwnWrites,
    loss_to,
    resolve_conflict,
)
from sparkinesis.lease.term import LeaseTerm
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import AfterRecord, AtTimestamp

MAX_TRIES = 10
"""The most tries of one write before giving up. Each handoff request or withdrawal costs a try."""


class HeldLease(LeaseTerm):
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
        acquired_at: float,
        publish: Listener,
        own_writes: OwnWrites,
    ) -> None:
        super().__init__(lease, failover_time, clock, acquired_at, publish)
        self.throughput_kbps: float | None = None
        """The measured rate, set by the worker; stored with each write of the owner."""
        self.known: tuple[ExtendedSequenceNumber, AfterRecord | AtTimestamp] | None = None
        """A checkpoint and the arrival times known at it; set by the reader, and stored with some
        renewals. Dropped where the shard is moved: two positions may have the same checkpoint, as
        every instant is stored as ``AT_TIMESTAMP``."""
        self.fencing_token = lease.fencing_token or 0
        """The token of this acquisition. Someone may raise the row's while the lease is held."""
        self.released: Lease | None = None
        """The row after this worker has released it; None before, and if that failed."""
        self._lease = lease
        self._table = table
        self._worker_id = worker_id
        self._own_writes = own_writes
        self._sent_at = acquired_at
        self._trouble: str | None = None
        """The error of the last write; None once a write has succeeded."""
        self._unanswered: list[tuple[float, Update]] = []
        """The writes since the last answer, any of which may have been made, and when each was
        sent."""
        self._lock = threading.Lock()
        """Serializes the writes; held until the answer of a write is known."""

    @property
    def stream(self) -> StreamIdentifier | None:
        """One of several streams of the application; None: its only stream."""
        return self._lease.stream

    @property
    def lease(self) -> Lease:
        """The row as last known."""
        return self._lease

    @property
    def handoff_to(self) -> str | None:
        """The worker that requested this lease and waits for its release."""
        return self._lease.owner if self._is_asked_for(self._lease) else None

    def _is_asked_for(self, row: Lease) -> bool:
        return row.checkpoint_owner == self._worker_id and row.owner != self._worker_id

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
            self.known = None
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
        self.known = None
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

    def confirm(self, doing: str) -> None:
        """Renew the lease now: another worker, or a user, may have changed the row unseen.

        Call this before a write elsewhere that cannot be taken back; ``doing`` names it. Raises
        what `checkpoint` raises.
        """
        self._write(doing, self._renewed)

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
                after = self._write_release(reason)
            except SparkinesisError as error:
                self._publish_end(released, self._lease, str(error))
                raise
            if isinstance(after, LeaseLoss):
                self._publish_end(after, self._lease)
            else:
                self.released = after
                self._publish_end(replace(released, to=after.owner), self._lease)

    def _write_release(self, reason: LeaseEnd) -> Lease | LeaseLoss:
        """Write the release; return the row, or how the lease was lost before."""
        row = self._lease
        for _ in range(MAX_TRIES):
            try:
                update = requests.release(row, self._worker_id)
                if reason is LeaseEnd.STOPPED:
                    update = requests.with_stop(row, update, self._worker_id)
                return self._table.write(update)
            except LeaseChangedError as refused:
                now = refused.row
                if now is None or now.actual_owner != self._worker_id or now.owner is None:
                    return loss_to(now)
                # A moment ago a worker requested the lease, or withdrew its request: workers
                # that end at the same time do both.
                row = now
        raise write_refused("release the lease", self._lease.shard_name, self._table)

    def lose(self, why: str, reason: LeaseEnd = LeaseEnd.GIVEN_UP) -> None:
        """Mark the lease as lost: another worker owns it, or may own it. Writes nothing."""
        self._lose(LeaseLoss(why, reason))

    def lose_if_expired(self) -> None:
        """Mark the lease as lost if it was not renewed within the failover time."""
        if not self.is_held():
            self._lose(self.loss, self._trouble)

    def observe(self, row: Lease) -> None:
        """Adopt a handoff request that a scan of the table shows."""
        if self._lock.acquire(blocking=False):
            try:
                if self._is_asked_for(row) and row.counter == self._lease.counter:
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
        """Take over a renewal's result; return a renewal to send in its place, or None."""
        return self._renewal() if self._settle(update, result) and self.is_held() else None

    def end_renewal(self) -> None:
        """Release the lock that `begin_renewal` acquired."""
        self._lock.release()

    def _renewal(self) -> Update:
        return self._to_send(self._renewed(self._lease))

    def _renewed(self, lease: Lease) -> Update:
        return requests.renew(lease, arrival_news(lease, self.known))

    def _to_send(self, update: Update) -> Update:
        """Return the update with the rate, to be sent now."""
        self._sent_at = self._clock()
        self._own_writes.add([update])
        rate = self.throughput_kbps
        return update if rate is None else requests.with_throughput(update, rate)

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
                result = self._table.try_write(update)
                if self._settle(update, result):
                    continue
                if isinstance(result, LeaseChangedError):
                    raise self._lost_error(doing)
                if isinstance(result, SparkinesisError):
                    raise result
                return
            raise write_refused(doing, self._lease.shard_name, self._table)

    def _settle(self, update: Update, result: Lease | SparkinesisError) -> bool:
        """Take over a write's result; return True if the write is to be built and sent again."""
        if isinstance(result, Lease):
            self._renew_from(self._sent_at)
            self._lease, self._trouble = result, None
            self._unanswered.clear()
            return False
        if isinstance(result, LeaseChangedError):
            self._reconcile(result.row)
            return self._lost is None
        # Whatever the error, an earlier try of the same call may have succeeded unanswered.
        self._unanswered.append((self._sent_at, update))
        self._trouble = str(result)
        return False

    def _reconcile(self, row: Lease | None) -> None:
        """Adopt the row of a refused write, or lose the lease if this worker does not own it."""
        unanswered = [update for _, update in self._unanswered]
        verdict = resolve_conflict(self._lease, row, self._worker_id, unanswered)
        if isinstance(verdict, LeaseLoss):
            self._lose(verdict)
            return
        for sent_at, update in self._unanswered:
            if update is verdict.landed:
                self._renew_from(sent_at)
        self._lease = verdict.row

    def _lose(self, loss: LeaseLoss, error: str | None = None) -> None:
        if self._end(loss):
            self._publish_end(loss, self._lease, error)

    def _lost_error(self, doing: str) -> LeaseLostError:
        return lease_lost(doing, self._lease.shard_name, self._table, self.loss.why)


def _is_behind(at: ExtendedSequenceNumber, lease: Lease) -> bool:
    """Return True if ``at`` is a record before the row's checkpoint; sentinels are resets."""
    return not at.is_sentinel and at < lease.checkpoint
