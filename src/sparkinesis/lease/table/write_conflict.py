"""Tells a worker's own writes from those of others, which may mean that a lease is lost."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

import msgspec

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import LeaseEnd
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.fencing import may_be_by
from sparkinesis.lease.table.update import Update, has_landed


class LeaseChangedError(SparkinesisError):
    """A write was refused because the lease's row has changed. Nothing was written.

    ``row`` is the present row; None if it was deleted or cannot be read.
    """

    def __init__(self, message: str, row: Lease | None) -> None:
        super().__init__(message)
        self.row = row


class StillHeld(msgspec.Struct, frozen=True):
    """The sender still owns the lease; ``row`` is its present row, for the next try."""

    row: Lease
    landed: Update | None = None
    """An earlier write, whose answer was lost, that explains the counter."""


class LeaseLoss(msgspec.Struct, frozen=True):
    """The sender no longer owns the lease."""

    why: str
    reason: LeaseEnd
    to: str | None = None
    """The worker that has the lease now; None if there is none, or it is not known."""

    @property
    def to_duplicate_worker(self) -> bool:
        """True if another process writes under the sender's worker id."""
        return self.reason is LeaseEnd.DUPLICATE_WORKER


def resolve_conflict(
    known: Lease, row: Lease | None, worker_id: str, unanswered: Iterable[Update]
) -> StillHeld | LeaseLoss:
    """Decide whether the sender still owns the lease, after a write for ``known`` met ``row``.

    The KCL takes any counter that is one higher for its own write. Here, the row must match one of
    ``unanswered``, the sender's writes since ``known`` whose answers never came: otherwise a second
    worker with the same id would stay unnoticed, and both would read the shard. A second worker has
    acquired the lease, and so has raised its fencing token to one of this worker id.
    """
    if row is None or row.actual_owner != worker_id:
        return loss_to(row)
    if row.counter == known.counter:
        # A handoff was requested, or the request was withdrawn. If the refusal does not include the
        # row, it is read afterwards, and may equal the known row again.
        return StillHeld(row)
    for update in unanswered:
        if has_landed(update, row):
            return StillHeld(row, update)
    if row.owner not in {worker_id, known.owner}:
        # A KCL before 3.0 does not know handoffs: it takes a lease by the counter alone and leaves
        # checkpointOwner, which still names this worker, in the row.
        return _taken_by(row.owner)
    if known.fencing_token is not None and (
        row.fencing_token == known.fencing_token or not may_be_by(row.fencing_token, worker_id)
    ):
        # Nobody has acquired the lease, or another worker has, and handed it over: a second process
        # would have raised the token to one of its own. So a leader has given the lease back to
        # this worker after a reset, or after a renewal that came too late.
        return _assigned_again()
    return LeaseLoss(
        f"another process writes to it as worker {worker_id} too: its counter is {row.counter}, "
        f"where {known.counter} was written last",
        LeaseEnd.DUPLICATE_WORKER,
    )


def loss_to(row: Lease | None) -> LeaseLoss:
    """Return the loss of a lease by its present row, which does not name the sender as owner."""
    if row is None:
        return LeaseLoss(
            "its row was deleted from the lease table, or is no longer a lease", LeaseEnd.DELETED
        )
    if row.owner is None or row.actual_owner is None:
        return LeaseLoss("it was released or reset by somebody else", LeaseEnd.RESET)
    return _taken_by(row.actual_owner)


def _assigned_again() -> LeaseLoss:
    return LeaseLoss(
        "it was another's or nobody's for a moment, and was assigned to this worker again",
        LeaseEnd.RESET,
    )


def _taken_by(worker_id: str | None) -> LeaseLoss:
    return LeaseLoss(f"worker {worker_id} has taken it", LeaseEnd.TAKEN, worker_id)


class OwnWrites:
    """The highest counter that this worker has tried to write to each lease. For any thread.

    A write without an answer may take effect at any time later, and a write whose answer came late
    may belong to a lease that has expired by then. Each of them leaves the counter that it was sent
    with, or is refused. So a counter above all of these was written by another process.

    If a row is deleted and made again within one scan interval, the counters begin anew, and
    another process is noticed only when it has passed the old ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest: dict[str, int] = {}

    def add(self, updates: Iterable[Update]) -> None:
        """Remember writes that raise the counter. Call this before they are sent."""
        with self._lock:
            for update in updates:
                known = self._highest.get(update.key, update.after.counter)
                self._highest[update.key] = max(known, update.after.counter)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all leases but those of these keys."""
        with self._lock:
            self._highest = {key: n for key, n in self._highest.items() if key in keys}

    def may_have_made(self, row: Lease) -> bool:
        """Return True if a write of this worker may have left the row's counter."""
        with self._lock:
            highest = self._highest.get(row.key)
        return highest is not None and row.counter <= highest
