"""Compares what Prometheus says with what the record processors counted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from tests.prometheus.journal import Totals

LAG_TOLERANCE = 1.0
"""Seconds by which the service's lag may differ from that of a batch's last record."""


@dataclass(frozen=True, slots=True)
class Fate:
    """A worker whose process has ended."""

    worker: str
    counted: Totals
    """By its record processors, to their end."""
    told: Totals
    """By Prometheus, after the worker's end."""
    scraped: Totals | None = None
    """What Prometheus had said before the worker was killed; None: it ended gracefully."""


def wrong_counts(fates: Iterable[Fate]) -> list[str]:
    """The same counts where a worker ended gracefully, and within bounds where it was killed."""
    found = []
    for fate in fates:
        for name in (field.name for field in fields(Totals)):
            counted, told = getattr(fate.counted, name), getattr(fate.told, name)
            if fate.scraped is None:
                if told != counted:
                    found.append(f"{fate.worker} counted {counted:g} {name}, Prometheus {told:g}")
                continue
            least = getattr(fate.scraped, name)
            if not least <= told <= counted:
                found.append(
                    f"{fate.worker}, which was killed, counted {counted:g} {name}; Prometheus had "
                    f"{least:g}, and says {told:g}"
                )
    return found


def wrong_lag(told: list[list[float]], furthest_behind: float, least: float) -> list[str]:
    """Lags of all shards over time: as far behind as batches were, and none of them at the end.

    furthest_behind: seconds, of all batches. least: seconds that the slow time must have made.
    """
    largest = max((max(values) for values in told), default=0.0)
    found = []
    if furthest_behind < least:
        found.append(f"no batch was {least:g} s behind, but {furthest_behind:.1f} s at most")
    if largest > furthest_behind + LAG_TOLERANCE:
        found.append(f"a lag of {largest:.1f} s, and no batch was {furthest_behind:.1f} s behind")
    if largest < furthest_behind / 2:
        found.append(f"lags up to {largest:.1f} s, where batches were {furthest_behind:.1f} s late")
    return found
