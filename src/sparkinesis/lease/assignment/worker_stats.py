"""The loads of workers: the rows that report them, as KCL 3.x has them, and what a leader reads.

The row is that of the KCL's ``WorkerMetricStats``: it has the worker's id as its key, in a table of
its own (``wid``, KCL 3.0 to 3.4) or among the leases (``leaseKey``, KCL 3.5).

==============  ====================================================================================
``lut``         the epoch second of the row
``sts``         by metric, the last ten averages of half a minute each; -1: it could not be measured
``opr``         by metric, the utilization (percent) that no worker should exceed
``sup``, ``slu``  the support code, and its epoch second: 1 knows coordination in the lease table
==============  ====================================================================================

A leader reads which workers live, and how loaded each is. The metrics are the KCL's: C (CPU), M
(memory), NI and NO (network in and out), and T, the throughput of a worker that measures nothing
else. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec

from sparkinesis.lease.lease import AttributeValue, Lease

CPU = "C"
"""The short name of the CPU utilization."""
FAILED = -1.0
"""The average of an interval without a measurement."""
INTERVAL = 30
"""Seconds between two rows of a worker."""
SINGLE_TABLE = 1
"""The support code of workers that find the rows of coordination in the lease table."""
ENTITY = "WORKER_METRIC_STATS"

_KEPT = 10
"""Averages in a row."""
_ALIVE = 2 * INTERVAL
_STALE = 24 * 3600
_RATE_ALONE = "THROUGHPUT"
"""The KCL's metric, in a row, of a worker that measures nothing else."""


class WorkerStats(msgspec.Struct, frozen=True):
    """The row of one worker."""

    worker_id: str
    updated_s: int
    """The epoch second, by the worker's clock; 0: the row has none."""
    samples: Mapping[str, tuple[float, ...]] = {}
    """By metric, the averages; the last one is the newest."""
    limits: Mapping[str, int] = {}
    """By metric, the highest utilization in percent."""
    support_code: int | None = None
    support_updated_s: int | None = None

    @property
    def by_throughput(self) -> bool:
        """True if the worker measures nothing: its load is the rate of its leases."""
        return not (self.samples or self.limits) or _RATE_ALONE in self.samples

    @property
    def is_valid(self) -> bool:
        """False if a KCL's leader ignores the row."""
        if not self.updated_s:
            return False
        if self.by_throughput:
            return True
        return self.samples.keys() <= self.limits.keys() and all(self.limits.values())

    @property
    def is_failing(self) -> bool:
        """True if a metric could not be measured in the last interval."""
        return not self.by_throughput and any(
            values[-1] == FAILED for values in self.samples.values() if values
        )

    def is_alive(self, now_s: float) -> bool:
        """Return True if the row is valid, and not older than two intervals; ``now_s``: in epoch s.

        A KCL's leader gives no leases to a worker that fails to measure (`is_failing`) either.
        """
        return self.is_valid and now_s - self.updated_s <= _ALIVE

    def is_stale(self, now_s: float) -> bool:
        """Return True if the leader deletes the row: the worker has ended a day ago."""
        return now_s - self.updated_s > _STALE


def encode_stats(stats: WorkerStats) -> dict[str, AttributeValue]:
    """Return the attributes of a row besides its key, as DynamoDB's API accepts them.

    Written even if they are empty, as Java does, so that no metric of an earlier life is left.
    """
    found: dict[str, AttributeValue] = {
        "entityType": {"S": ENTITY},
        "lut": {"N": str(stats.updated_s)},
        "sts": {
            "M": {
                name: {"L": [{"N": f"{_rounded(each):f}"} for each in values]}
                for name, values in stats.samples.items()
            }
        },
        "opr": {"M": {name: {"L": [{"N": str(most)}]} for name, most in stats.limits.items()}},
    }
    if stats.support_code is not None:
        found["sup"] = {"N": str(stats.support_code)}
    if stats.support_updated_s is not None:
        found["slu"] = {"N": str(stats.support_updated_s)}
    return found


def decode_stats(item: Mapping[str, Any], key: str = "leaseKey") -> WorkerStats | None:
    """Read a row, as DynamoDB's API returns it; None for any other row, or one that is broken.

    key: the attribute that is the table's key. In a table of its own, a row may have no
    ``entityType``: a KCL before 3.5 writes none.
    """
    kind = item.get("entityType", {}).get("S")
    if kind != ENTITY and not (kind is None and key != "leaseKey"):
        return None
    try:
        lists = {name: each["L"] for name, each in _map(item, "opr").items()}
        return WorkerStats(
            worker_id=str(item[key]["S"]),
            updated_s=_whole(item, "lut") or 0,
            samples={
                name: tuple(float(value["N"]) for value in each["L"])
                for name, each in _map(item, "sts").items()
            },
            limits={
                name: int(Decimal(each[0]["N"])) if each else 0 for name, each in lists.items()
            },
            support_code=_whole(item, "sup"),
            support_updated_s=_whole(item, "slu"),
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None


def newest(stats: Iterable[WorkerStats]) -> dict[str, WorkerStats]:
    """Return the newest row of each worker, by its id: during a migration there may be two."""
    found: dict[str, WorkerStats] = {}
    for one in stats:
        known = found.get(one.worker_id)
        if known is None or known.updated_s < one.updated_s:
            found[one.worker_id] = one
    return found


def with_sample(
    samples: Mapping[str, tuple[float, ...]], name: str, value: float | None
) -> dict[str, tuple[float, ...]]:
    """Return the samples of a worker's next row: the last ten of a metric, with one more.

    None: the metric could not be measured. A leader gives no leases to a worker whose last sample
    says so; a new worker writes its first row after its first sample, and not before.
    """
    sample = FAILED if value is None else float(_rounded(value))
    return {**samples, name: (*samples.get(name, ()), sample)[-_KEPT:]}


def _rounded(value: float) -> Decimal:
    return Decimal(str(value)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def _map(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = item.get(name, {}).get("M") or {}
    return found


def _whole(item: Mapping[str, Any], name: str) -> int | None:
    return int(Decimal(item[name]["N"])) if name in item else None


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
