"""When a worker scans the lease table again.

A crash is noticed by a counter that stands still, from the first scan that shows its last value. So
the longest failover is one failover time after the longest pause between two scans, provided that a
scan follows as soon as the failover time is over.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.observations import Observation
from sparkinesis.lease.rules.taker import TakeSettings

CALM = 2
"""Scan intervals between two scans while all other workers renew their leases: a renew interval."""
ALONE = 4
"""Scan intervals between two scans while this worker holds all leases: nobody else can crash. A
lease that is requested, taken or reset is noticed by the next renewal."""
_STILL = 3
"""Scan intervals for which a counter stands still only if its owner has missed a renewal."""
_EARLY = 0.25
"""Scan intervals by which a scan may come before the middle between two rounds of renewals."""
_JUST_AFTER = 0.01
"""Seconds from the end of a failover time to the scan that finds the lease expired."""


class ScanSchedule:
    """The time of the next scan. For the thread that takes leases."""

    def __init__(
        self, settings: TakeSettings, renewer: LeaseRenewer, worker_id: str, *, may_be_alone: bool
    ) -> None:
        self._worker_id = worker_id
        self._failover_time = settings.failover_time
        self._interval = settings.scan_interval
        self._renewer = renewer
        self._may_be_alone = may_be_alone
        self._began = -math.inf
        self._next_at = -math.inf
        self._held: frozenset[str] = frozenset()
        """The keys of the leases that were held after the last scan."""

    def next_at(self) -> float:
        """Return the time of the next scan: sooner than planned if other leases are held now."""
        if self._renewer.held().keys() != self._held:
            return min(self._next_at, self._began + self._interval)
        return self._next_at

    def after_unsettled_scan(self, began: float, held: Iterable[str]) -> None:
        """Plan the next scan soon, after one that began at ``began``."""
        self._plan(began, self._interval / 3, held)

    def after_scan(
        self,
        leases: Iterable[Lease],
        observations: Mapping[str, Observation],
        began: float,
        now: float,
        held: Collection[str],
        *,
        has_leader: bool,
    ) -> None:
        """Plan the next scan after one from ``began`` to ``now``, by what it has shown."""
        pause = scan_pause(
            leases,
            observations,
            self._worker_id,
            now,
            failover_time=self._failover_time,
            interval=self._interval,
            held=held,
            may_be_alone=self._may_be_alone,
        )
        # A leader proves three times in a failover time that it is alive.
        pause = min(pause, CALM * self._interval) if has_leader else pause
        self._plan_between(began, pause, held)

    def after_partial_scan(self, began: float, held: Iterable[str], *, is_coming: bool) -> None:
        """Plan the next scan after one of own rows; is_coming: one is for this worker."""
        self._plan_between(began, self._interval * (1 if is_coming else CALM), held)

    def _plan_between(self, began: float, pause: float, held: Iterable[str]) -> None:
        pause = between_renewals(pause, began, self._renewer.renewed_at, self._interval)
        self._plan(began, pause, held)

    def _plan(self, began: float, pause: float, held: Iterable[str]) -> None:
        """Plan the next scan ``pause`` seconds after the start of this one."""
        self._began, self._next_at, self._held = began, began + pause, frozenset(held)


def scan_pause(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    worker_id: str,
    now: float,
    *,
    failover_time: float,
    interval: float,
    held: Collection[str],
    may_be_alone: bool,
) -> float:
    """Return the seconds from a scan at ``now`` until the next one, by what the scan has shown.

    interval: the shortest pause, half a renew interval; it applies while leases are to move, or if
    an owner seems to be silent. held: the keys of the leases that this worker holds. may_be_alone:
    False if leases of other streams may appear. Each lease needs an observation.
    """
    is_alone, is_calm = may_be_alone and bool(held), True
    expiry = math.inf
    for row in leases:
        if row.is_finished:
            continue
        if row.owner is None or row.checkpoint_owner is not None:
            is_calm = False  # the lease is to be taken, or handed over
        elif row.owner == worker_id:
            is_calm = is_calm and row.key in held
        else:
            is_alone = False
            age = now - observations[row.key].since
            if age > _STILL * interval:
                is_calm = False
            if age <= failover_time:
                expiry = min(expiry, failover_time - age + _JUST_AFTER)
    if not is_calm:
        return min(interval, expiry)
    return min(ALONE * interval if is_alone else CALM * interval, expiry)


def between_renewals(pause: float, now: float, renewed_at: float, interval: float) -> float:
    """Return the pause, shortened so that the scan comes midway between two rounds of renewals.

    So a worker reads its own rows twice in a renew interval. renewed_at: the time at which the
    last round began. interval: the scan interval, half a renew interval.
    """
    late = (now + pause - renewed_at - interval) % (2 * interval)
    is_early = late > (2 - _EARLY) * interval
    return pause if pause <= interval or is_early else pause - min(late, interval)
