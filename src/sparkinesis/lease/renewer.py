"""Renews the leases that a worker holds, and detects those that it has lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sparkinesis.errors import LeaseTableNotFoundError, SparkinesisError
from sparkinesis.events import LeaseEnd, Listener, RenewalFailed, RenewalRecovered, ignore
from sparkinesis.lease.held import MAX_TRIES, HeldLease
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.batching import Batching
from sparkinesis.lease.table.statements import batches_of
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError, OwnWrites
from sparkinesis.metrics.catalogue import RENEWAL_DURATION
from sparkinesis.metrics.health.liveness import helping
from sparkinesis.metrics.metrics import FAILED, OFF, OK, Metrics, timed
from sparkinesis.metrics.repeats import Repeats

_MAX_THREADS = 20
"""The KCL's ``maxLeaseRenewalThreads``."""


class HeldLeases:
    """The leases that a worker holds, by lease key. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, HeldLease] = {}
        self._duplicates: set[str] = set()

    def put(self, held: HeldLease) -> HeldLease | None:
        """Add a lease; return the one of the same key that it replaces."""
        with self._lock:
            before = self._held.get(held.key)
            self._held[held.key] = held
            return before

    def remove(self, held: HeldLease) -> None:
        """Remove a lease that has ended; its key is kept if a duplicate worker has it."""
        with self._lock:
            if held.is_lost_to_duplicate:
                self._duplicates.add(held.key)
            if self._held.get(held.key) is held:
                del self._held[held.key]

    def all(self) -> list[HeldLease]:
        """Return all leases, those that have ended meanwhile too."""
        with self._lock:
            return list(self._held.values())

    @property
    def duplicates(self) -> frozenset[str]:
        """Keys of the leases that were lost to another process with the worker's id."""
        with self._lock:
            lost = {key for key, held in self._held.items() if held.is_lost_to_duplicate}
            return frozenset(self._duplicates | lost)


class LeaseRenewer:
    """Holds leases, and renews them.

    ``failover_time`` is in seconds; ``clock`` is monotonic. Call `renew_all` from one thread, three
    times within the failover time; call the other methods from any thread.
    """

    def __init__(
        self,
        table: LeaseTable,
        worker_id: str,
        failover_time: float,
        clock: Callable[[], float] = time.monotonic,
        publish: Listener = ignore,
        *,
        metrics: Metrics = OFF,
    ) -> None:
        self._metrics = metrics
        self._table = table
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._clock = clock
        self._publish = publish
        self._leases = HeldLeases()
        self._repeats = Repeats(clock)
        self._failing_since: float | None = None
        """The time of the first failed round; None if the last round went well."""
        self.renewed_at = clock()
        """The time at which the last round of renewals began."""
        self.batching = Batching(table, clock)
        """For all writes of the worker that may share a call."""
        self.own_writes = OwnWrites()
        """All writes of the worker by which it acquires or renews a lease."""

    def hold(self, lease: Lease, acquired_at: float | None = None) -> HeldLease:
        """Start to renew a lease that this worker owns by its row ``lease``.

        ``acquired_at``: the clock's time before the acquiring write was sent; default: now.
        """
        held = HeldLease(
            lease,
            self._table,
            self._worker_id,
            failover_time=self._failover_time,
            clock=self._clock,
            acquired_at=self._clock() if acquired_at is None else acquired_at,
            publish=self._publish,
            own_writes=self.own_writes,
        )
        before = self._leases.put(held)
        if before is not None:
            before.lose("it was acquired anew", LeaseEnd.EXPIRED)
        return held

    def held(self) -> dict[str, HeldLease]:
        """Return the leases that are held now, by lease key."""
        return {held.key: held for held in self._leases.all() if held.is_held()}

    @property
    def duplicate_worker_leases(self) -> frozenset[str]:
        """Keys of leases lost to another process with this worker's id; the worker must stop."""
        return self._leases.duplicates

    def renew_all(self) -> None:
        """Renew every lease once; drop those that another worker owns or that have expired.

        Raises nothing if the table cannot be reached or written: `RenewalFailed` has the error, and
        leases are held until they expire.
        """
        timed(
            self._renew_all,
            self._metrics,
            RENEWAL_DURATION,
            (),
            clock=self._clock,
            result=lambda are_renewed: OK if are_renewed else FAILED,
        )

    def _renew_all(self) -> bool:
        """Return False if a lease could not be renewed, although it is not lost."""
        self.renewed_at = self._clock()
        all_held = self._leases.all()
        self._lose_expired(all_held)
        # Leases with the oldest renewals come first, since a round may take long.
        due = sorted((one for one in all_held if one.is_held()), key=lambda one: one.renewed_at)
        batches = list(batches_of(due, self.batching.size([one.lease for one in due])))
        failures: Counter[str] = Counter()
        if len(batches) == 1:
            failures += self._renew(batches[0])
        else:
            with ThreadPoolExecutor(_MAX_THREADS, "lease-renewal") as pool:
                for failed in pool.map(helping(self._renew), batches):
                    failures += failed
        self._lose_expired(all_held)
        for text, count in failures.items():
            if times := self._repeats.note(text):
                self._publish(RenewalFailed(count, len(due), text, times))
        self._note_result(failed=bool(failures))
        return not failures

    def _note_result(self, *, failed: bool) -> None:
        """Publish that renewing works again. A worker whose leases are all lost renews nothing."""
        if failed:
            if self._failing_since is None:
                self._failing_since = self._clock()
        elif self._failing_since is not None:
            self._repeats.end()
            if self._leases.all():
                self._publish(RenewalRecovered(self._clock() - self._failing_since))
            self._failing_since = None

    def _renew(self, batch: Sequence[HeldLease]) -> Counter[str]:
        """Renew some leases; return the number of failures by error text, without lost leases."""
        due = [(held, update) for held in batch if (update := held.begin_renewal()) is not None]
        failures: Counter[str] = Counter()
        try:
            left = due
            for _ in range(MAX_TRIES):
                if not left:
                    break
                results = self.batching.write([update for _, update in left])
                again = []
                for (held, update), result in zip(left, results, strict=True):
                    instead = held.settle_renewal(update, result)
                    if instead is not None:
                        again.append((held, instead))
                    elif isinstance(result, SparkinesisError) and not isinstance(
                        # The thread that takes leases reports a deleted table.
                        result,
                        LeaseChangedError | LeaseTableNotFoundError,
                    ):
                        failures[str(result)] += 1
                left = again
            if left:
                failures["refused, although the rows meet the conditions of the writes"] += len(
                    left
                )
        finally:
            for held, _ in due:
                held.end_renewal()
        return failures

    def _lose_expired(self, all_held: Sequence[HeldLease]) -> None:
        for held in all_held:
            if held.is_held():
                continue
            held.lose_if_expired()
            self._leases.remove(held)
