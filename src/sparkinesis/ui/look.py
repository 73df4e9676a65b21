"""An application at one moment, as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sparkinesis.monitor.streams import shown_names
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View
from sparkinesis.ui.reported import NOTHING_REPORTED, Reported

_KEPT_FOR = 3600.0
"""Seconds for which points are kept."""
_MOST = 7200
"""Points, whatever the interval."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A point of the charts: the application at one look."""

    at: float
    """Seconds since the epoch."""
    lag_ms: int | None
    """The largest lag; None if no lag is known."""
    kilobytes_per_second: float | None
    """By the lease table; None if no owner stores its rate."""
    records_per_second: float | None
    """By the workers; None if none of them is asked."""


def with_point(before: Sequence[ChartPoint], point: ChartPoint) -> tuple[ChartPoint, ...]:
    """Return the points of the last hour with another one."""
    # If the clock was set back, the points before are at no known time.
    is_back = bool(before) and point.at < before[-1].at
    kept = [] if is_back else [one for one in before if one.at >= point.at - _KEPT_FOR]
    return (*kept, point)[-_MOST:]


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """An application at one moment, by its table, its streams and its workers."""

    number: int
    """Greater than those of earlier looks."""
    at: float
    """Seconds since the epoch."""
    view: View
    """As `sparkinesis top` shows it."""
    table: WatchedTable = field(default_factory=WatchedTable)
    listed: Mapping[StreamIdentifier | None, tuple[Shard, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The shards that the service lists, of the streams whose maps are shown."""
    reported: Reported = NOTHING_REPORTED
    history: tuple[ChartPoint, ...] = ()

    @property
    def stream_names(self) -> dict[str, StreamIdentifier | None]:
        """The streams by their names for people; ``""`` is the only one of an application."""
        names = shown_names(self.table.streams)
        return {name: one for one, name in names.items()} or {"": None}
