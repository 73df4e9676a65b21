"""The row in which a worker reports its load to the leader: KCL 3.x's worker metrics. Pure.

The row is that of the KCL's ``WorkerMetricStats``: it has the worker's id as its key, in a table of
its own (``wid``, KCL 3.0 to 3.4) or among the leases (``leaseKey``, KCL 3.5).

==============  ====================================================================================
``lut``         the epoch second of the row
``sts``         by metric, the last ten averages of half a minute each; -1: it could not be measured
``opr``         by metric, the utilization (percent) that no worker should exceed
``sup``, ``slu``  the support code, and its epoch second: 1 knows coordination in the lease table
==============  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec

from sparkinesis.lease.lease import AttributeValue

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
_THROUGHPUT = "THROUGHPUT"


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
        return not (self.samples or self.limits) or _THROUGHPUT in self.samples

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
