"""The workers as their leader knows them: which of them live, and how loaded each is.

The metrics are the KCL's: C (CPU), M (memory), NI and NO (network in and out), and T, the
throughput of a worker that measures nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from sparkinesis.lease.assignment.worker_stats import FAILED, WorkerStats
from sparkinesis.lease.lease import Lease

THROUGHPUT = "T"
"""The metric of a worker without others: its KB/s, in percent of the mean of all workers."""

EVEN = 100.0
"""The value of `THROUGHPUT` that is the mean, and the limit of its operating range."""


class WorkerLoad(msgspec.Struct, frozen=True):
    """A live worker."""

    worker_id: str
    load: Mapping[str, float] = {}
    """The average of each metric, by its short name; empty for a worker that measures none."""
    limit: Mapping[str, float] = {}
    """The end of the operating range of each metric; a metric that is not there has none."""
    is_failing: bool = False
    """True if the worker could not measure one of its metrics when it last tried."""


def members_of(
    stats: Collection[WorkerStats], absent: Collection[str], second: float
) -> list[WorkerLoad]:
    """Return the workers to which a leader may assign leases at an epoch second.

    absent: workers that have crashed or are about to end, although their rows are young.
    """
    return [
        member(one.worker_id, {} if one.by_throughput else one.samples, one.limits)
        for one in stats
        if one.is_alive(second) and one.worker_id not in absent
    ]


def member(
    worker_id: str, samples: Mapping[str, Sequence[float]], limit: Mapping[str, float]
) -> WorkerLoad:
    """Return a member by the last samples of each metric, oldest first.

    A metric without a sample says nothing of the load. (The KCL counts it as no load, and gives the
    worker the next leases.)
    """
    averages = {name: average(values) for name, values in samples.items()}
    return WorkerLoad(
        worker_id,
        {name: value for name, value in averages.items() if value is not None},
        dict(limit),
        is_failing=any(values and values[-1] == FAILED for values in samples.values()),
    )


def average(samples: Iterable[float], *, alpha: float = 0.5) -> float | None:
    """Return the exponential moving average of samples, oldest first; None without any.

    The first sample is the first average. Samples that were not measured are left out.
    """
    found = None
    for sample in samples:
        if sample != FAILED and math.isfinite(sample):
            found = sample if found is None else alpha * sample + (1 - alpha) * found
    return found


def silent_workers(
    before: Mapping[str, float],
    reported: Mapping[str, float],
    leases: Iterable[Lease],
    vacant: Collection[str],
    renewing: Collection[str],
) -> dict[str, float]:
    """Return the workers that must be left out as if dead, with the instant of their last report.

    A worker that has let leases lapse and renews none is left out until it reports again. Its last
    report counts for a minute, and for that long the KCL's leader gives leases to a worker that has
    died: without any, it is the least loaded. A lease that was given to such a worker proves
    nothing before it is renewed.

    ``before``: what this function returned last; ``reported``: the instant of each worker's last
    report; ``vacant``: the keys of leases that nobody renews; ``renewing``: the workers that have
    renewed a lease lately.
    """
    lapsed = {row.actual_owner for row in leases if row.key in vacant}
    quiet = {who for who, at in before.items() if reported.get(who) == at}
    return {who: at for who, at in reported.items() if who in (lapsed | quiet) - set(renewing)}


def unproven_workers(
    reported: Mapping[str, float], leases: Iterable[Lease], since: float
) -> dict[str, float]:
    """Return the workers that a new leader leaves out until they report again.

    Those without a lease whose last report is older than ``since``: the leader before may have
    found them dead. A live one waits half a minute at most, and the others read its share.
    ``reported``: the instant of each worker's last report.
    """
    owners = {row.actual_owner for row in leases}
    return {who: at for who, at in reported.items() if who not in owners and at < since}


def releasing_workers(owners: Mapping[str, str | None], leases: Iterable[Lease]) -> frozenset[str]:
    """Return the workers that have released an unfinished lease to nobody since the last scan.

    Such a worker is about to end: it has no leases left, so it would be given them back, but ends
    before it adopts them. ``owners``: the owner of each lease by the last scan.
    """
    released = (owners.get(row.key) for row in leases if row.owner is None and not row.is_finished)
    return frozenset(who for who in released if who is not None)


def by_throughput(members: Iterable[WorkerLoad], kbps: Mapping[str, float]) -> list[WorkerLoad]:
    """Return the members, with `THROUGHPUT` as the metric of those that have no other.

    ``kbps``: the throughput of each. If all of it is 0, so is the metric (the KCL computes 0 / 0
    and compares workers by NaN from then on).
    """
    members = list(members)
    mean = sum(kbps.get(one.worker_id, 0.0) for one in members) / max(1, len(members))
    return [
        one
        if one.load
        else WorkerLoad(
            one.worker_id,
            {THROUGHPUT: EVEN * kbps.get(one.worker_id, 0.0) / mean if mean else 0.0},
            {THROUGHPUT: EVEN},
            one.is_failing,
        )
        for one in members
    ]


def room_of(one: WorkerLoad) -> float:
    """Return the part of a worker's range that is left: in quarters, one at least.

    It is that of the fullest metric. In quarters, because a few percent are noise, and the next
    runs would move leases for them.
    """
    used = (value / one.limit[name] for name, value in one.load.items() if one.limit.get(name))
    return max(1, math.ceil(4 * (1 - max(used, default=0.0)))) / 4


def costs_of(members: Iterable[WorkerLoad], carried: Mapping[str, float]) -> dict[str, float]:
    """Return how much of each metric a KB/s costs, in the mean of the workers that measure it."""
    values: dict[str, float] = {}
    read: dict[str, float] = {}
    for one in members:
        for name, value in one.load.items():
            values[name] = values.get(name, 0.0) + value
            read[name] = read.get(name, 0.0) + carried[one.worker_id]
    return {name: value / read[name] if read[name] else 0.0 for name, value in values.items()}
