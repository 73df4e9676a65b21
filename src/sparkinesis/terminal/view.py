"""The view of an application in `sparkinesis top`, a fleet's `watch` and the live page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sparkinesis.errors import printable
from sparkinesis.terminal.printing import counted

LATE_MS, VERY_LATE_MS = 10_000, 60_000
"""The smallest lags that are marked with ``!`` and with ``!!``."""

SIGN = {"": "", "late": "!", "very-late": "!!"}


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard."""

    shard: str
    """The shard's id, or the key of its lease."""
    owner: str | None
    state: str
    millis_behind: int | None
    """The lag in milliseconds; None if unknown."""
    rate: float | None
    """The rate in the view's unit; None if unknown; the compact layout then shows the state."""
    note: str = ""
    is_amiss: bool = False
    """True for a fault that the lag does not show; the row comes first if its lag is unknown."""
    stream: str = ""
    """The stream's name in a view of several streams; the shard is then the key of the lease."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The shards of an owner, or of one of several streams."""

    name: str
    shards: int
    """The number of shards that are not finished."""
    millis_behind: int | None
    """The largest lag of its shards."""
    rate: float | None
    note: str = ""
    is_amiss: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """An application at one moment."""

    title: str
    summary: str
    rate_unit: Literal["records/s", "KB/s"]
    owners: tuple[GroupRow, ...] = ()
    shards: tuple[ShardRow, ...] = ()
    messages: tuple[str, ...] = ()
    """The messages, most important first; the last ones are left out if room is short."""
    is_partial: bool = False
    """True if shards that the view does not show have records: the overall lag may be larger."""
    streams: tuple[GroupRow, ...] = ()
    """The streams of an application of several; empty for one that reads a single stream."""

    @property
    def millis_behind(self) -> int | None:
        """The largest known lag."""
        return largest(row.millis_behind for row in self.shards)

    @property
    def shown_lag(self) -> int | None:
        """The largest known lag; None if there is none, but other shards have records."""
        return None if self.is_partial and not self.millis_behind else self.millis_behind

    @property
    def states(self) -> str:
        """The number of shards in each state."""
        counts = Counter(row.state for row in self.shards).most_common()
        return ", ".join(f"{n} {one_line(state)}" for state, n in counts)

    @property
    def rate(self) -> float | None:
        """The rate of all owners; None if no rate is known."""
        return total(row.rate for row in self.owners)


def largest(lags: Iterable[int | None]) -> int | None:
    """Return the largest known lag; None if no lag is known."""
    return max((lag for lag in lags if lag is not None), default=None)


def total(rates: Iterable[float | None]) -> float | None:
    """Return the sum of the known rates; None if no rate is known."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def lateness(millis: int | None) -> Literal["", "late", "very-late"]:
    """Return how late a lag is; an unknown one is not."""
    if millis is None or millis < LATE_MS:
        return ""
    return "late" if millis < VERY_LATE_MS else "very-late"


def behind(millis: int | None) -> str:
    """Return a lag as text of at most six characters."""
    if millis is None:
        return "-"
    seconds = millis / 1000
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 99.95 else f"{hours / 24:.0f} d"


def rate_text(rate: float | None) -> str:
    """Return a rate as text of at most eight characters; "-" if it is unknown."""
    if rate is None:
        return "-"
    if rate < 99.95:
        return f"{rate:.1f}"
    if rate < 99_999.5:
        return f"{rate:,.0f}"
    return f"{rate / 1e3:.1f}k" if rate < 999_950 else f"{rate / 1e6:.1f}M"


def figures(view: View) -> list[str]:
    """Return the totals of the view: shards by state, owners, the largest lag, and the rate."""
    lag, rate, known = view.shown_lag, view.rate, "lag unknown"
    if lag is not None:
        known = " ".join(filter(None, (SIGN[lateness(lag)], behind(lag), "behind")))
        known = f"at least {known}" if view.is_partial else known
    return [
        counted(len(view.shards), "shard") + (f" ({view.states})" if view.shards else ""),
        counted(len(view.owners), "owner"),
        known,
        "rate unknown" if rate is None else f"{rate_text(rate)} {view.rate_unit}",
    ]


def summary_line(view: View) -> str:
    """Return the view as one line."""
    return f"{one_line(view.title)}: {one_line(view.summary)}; {', '.join(figures(view))}"


def one_line(text: str) -> str:
    """Return text from elsewhere as one line, which cannot move the cursor."""
    return " ".join(printable(text).split())
