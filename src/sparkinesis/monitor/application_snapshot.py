"""An application at one moment, by its lease table and its lags: each fact once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.chosen_streams import replaced_streams, shown_names, unread_streams
from sparkinesis.monitor.watched import (
    QUIET,
    LeaseState,
    WatchedTable,
    counted_lag,
    lease_states,
    unread_for,
)
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.terminal.view import largest, total

if TYPE_CHECKING:
    from sparkinesis.monitor.lags import Lag


@dataclass(frozen=True, slots=True)
class LeaseSnapshot:
    """A lease, and the state of its shard."""

    lease: Lease
    stream: str
    """The name of its stream for people; empty if the lease names none."""
    state: LeaseState
    lag: Lag | None
    """None: it is not read yet, or is not to be read."""
    unread_for: float | None
    """Seconds for which no live worker has read the shard; None: a live worker reads it."""
    still_for: float
    """Seconds for which its counter has not moved."""

    @property
    def millis_behind(self) -> int | None:
        """The lag to show; None if it was not measured, or could not be."""
        if self.lag is None or (self.lag.why and not self.lag.lost):
            return None
        return counted_lag(self.lag.millis_behind_latest, self.unread_for)

    @property
    def rate(self) -> float | None:
        """The KB/s that its owner reads; None for a lost owner, whose rate is out of date."""
        is_held = self.state in {LeaseState.HELD, LeaseState.HANDED_OVER}
        return self.lease.throughput_kbps if is_held and self.unread_for is None else None


class Totals(NamedTuple):
    """The totals of an owner's leases, or of a stream's."""

    shards: int
    """The number of shards that are not finished."""
    millis_behind: int | None
    """The largest lag."""
    rate: float | None

    @classmethod
    def of(cls, leases: Iterable[LeaseSnapshot]) -> Totals:
        """Add up leases."""
        every = list(leases)
        return cls(
            sum(not one.lease.is_finished for one in every),
            largest(one.millis_behind for one in every),
            total(one.rate for one in every),
        )


@dataclass(frozen=True, slots=True)
class ApplicationSnapshot:
    """The leases of the streams that an operator wants to see, with their states and lags."""

    watched: WatchedTable
    """Only those leases."""
    lags: Mapping[str, Lag]
    """By lease key."""
    leases: tuple[LeaseSnapshot, ...]
    """In the order of ``watched``."""
    names: Mapping[StreamIdentifier, str]
    """The streams that the leases name, and their names for people."""
    replaced: Mapping[StreamIdentifier, StreamIdentifier]
    """Those that were deleted and made anew, each with the newest of its name."""
    unread_streams: frozenset[StreamIdentifier]
    """Those that no live worker reads, while workers read others."""
    quiet: float
    """Seconds without a renewal after which an owner counts as dead."""

    @classmethod
    def of(
        cls,
        whole: WatchedTable,
        lags: Mapping[str, Lag],
        wanted: frozenset[StreamIdentifier] | None = None,
        quiet: float = QUIET,
    ) -> ApplicationSnapshot:
        """Take a snapshot. ``wanted``: the streams to see; None: all of the table."""
        shown = whole if wanted is None else whole.of(wanted)
        states, unread = lease_states(shown.leases), unread_for(shown, quiet)
        names = shown_names(shown.streams)
        leases = tuple(
            LeaseSnapshot(
                lease,
                names[lease.stream] if lease.stream else "",
                states[lease.key],
                lags.get(lease.key),
                unread.get(lease.key),
                shown.still_for(lease.key),
            )
            for lease in shown.leases
        )
        replaced = {
            old: new for old, new in replaced_streams(whole.streams).items() if old in names
        }
        unread_names = unread_streams(whole, quiet) & shown.streams
        return cls(shown, lags, leases, names, replaced, unread_names, quiet)

    @property
    def owners(self) -> dict[str, list[LeaseSnapshot]]:
        """The unfinished leases of each owner, in the order of the owners' names."""
        found: dict[str, list[LeaseSnapshot]] = {}
        for one in self.leases:
            if one.lease.actual_owner is not None and not one.lease.is_finished:
                found.setdefault(one.lease.actual_owner, []).append(one)
        return dict(sorted(found.items()))

    @property
    def streams(self) -> dict[StreamIdentifier, list[LeaseSnapshot]]:
        """The leases of each stream, in the order of ``names``."""
        found: dict[StreamIdentifier, list[LeaseSnapshot]] = {one: [] for one in self.names}
        for one in self.leases:
            if one.lease.stream is not None:
                found[one.lease.stream].append(one)
        return found
