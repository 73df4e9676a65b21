"""The time for which a worker may use a lease, and how that time ends."""

# A worker may use a lease as long as no other worker can have taken it. Others take it once they
# have seen its counter unchanged for a failover time. So the time counts from the moment at which
# the last successful write was *sent*: no scan can have seen its counter earlier. Counted from the
# answer, a slow answer gives two workers one lease; the specification has that as a planted fault.
#
# So a lease may be without a reader for a while, and never has two. Where the clock stands still
# with a suspended machine, which the simulation plays, the term looks fresh at the end; then the
# condition of the next write, the counter, keeps the worker from checkpointing.
#
# A lease ends once, by what notices first: a write that is refused, the renewer that finds it
# expired, a user's call that gives it up. `_ending` is a lock of its own, since the thread that
# writes holds the other one for as long as a call lasts, and a consumer that must stop does not
# wait for that.

from __future__ import annotations

import threading
from collections.abc import Callable

from sparkinesis.events import LeaseEnd, LeaseEnded, Listener
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.write_conflict import LeaseLoss


class LeaseTerm:
    """The time from an acquisition until the lease is lost or released. For any thread."""

    def __init__(
        self,
        lease: Lease,
        failover_time: float,
        clock: Callable[[], float],
        acquired_at: float,
        publish: Listener,
    ) -> None:
        """``acquired_at``: the clock's time before the acquiring write was sent."""
        self.key = lease.key
        self.shard_id = lease.shard_id
        self._failover_time = failover_time
        self._clock = clock
        self._publish = publish
        self._acquired_at = acquired_at
        self.renewed_at = acquired_at
        """The time at which the last successful write was sent."""
        self._lost: LeaseLoss | None = None
        self._ending = threading.Lock()
        """Guards `_lost`, which a thread may set while another one waits for a write's answer."""

    def is_held(self) -> bool:
        """Return True if the lease is not lost or released, and renewed within the failover time.

        The failover time starts when the renewal was sent: no worker can have seen it earlier.
        """
        return self._lost is None and self._clock() - self.renewed_at <= self._failover_time

    @property
    def loss(self) -> LeaseLoss:
        """How the lease was lost; if it was not, that it expires."""
        if self._lost is not None:
            return self._lost
        why = (
            f"it could not be renewed for {self._failover_time:g} s, and another worker may own it"
        )
        return LeaseLoss(why, LeaseEnd.EXPIRED)

    @property
    def is_lost_to_duplicate(self) -> bool:
        """True if the lease was lost to another process with the same worker id."""
        return self._lost is not None and self._lost.to_duplicate_worker

    def _renew_from(self, sent_at: float) -> None:
        """Prolong the term by a write that was made, and was sent at ``sent_at``."""
        self.renewed_at = max(self.renewed_at, sent_at)

    def _end(self, loss: LeaseLoss) -> bool:
        """Mark the lease as ended; return False if it had ended before."""
        with self._ending:
            if self._lost is not None:
                return False
            self._lost = loss
            return True

    def _publish_end(self, loss: LeaseLoss, row: Lease, error: str | None = None) -> None:
        """Publish the end of the lease; ``row``: as it was known last."""
        self._publish(
            LeaseEnded(
                self.key,
                self.shard_id,
                loss.reason,
                loss.why,
                loss.to,
                self._clock() - self._acquired_at,
                str(row.checkpoint),
                error,
            )
        )
