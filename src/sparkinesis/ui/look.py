"""What the page shows at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkinesis.monitor.streams import shown_names
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View
from sparkinesis.ui.history import Point
from sparkinesis.ui.reported import NOTHING_REPORTED, Reported

if TYPE_CHECKING:
    from sparkinesis.monitor.lags import Lag


@dataclass(frozen=True, slots=True)
class Look:
    """An application at one moment, by its table, its streams and its workers."""

    number: int
    """Greater than those of earlier looks."""
    at: float
    """Seconds since the epoch."""
    view: View
    """As `sparkinesis top` shows it."""
    table: WatchedTable = field(default_factory=WatchedTable)
    lags: Mapping[str, Lag] = field(default_factory=lambda: MappingProxyType({}))
    listed: Mapping[StreamIdentifier | None, tuple[Shard, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The shards that the service lists, of the streams whose maps are shown."""
    reported: Reported = NOTHING_REPORTED
    history: tuple[Point, ...] = ()

    @property
    def stream_names(self) -> dict[str, StreamIdentifier | None]:
        """The streams by their names for people; ``""`` is the only one of an application."""
        names = shown_names(self.table.streams)
        return {name: one for one, name in names.items()} or {"": None}
