"""The streams of a lease table: their names for people, and those that are not read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkinesis.errors import OptionError, listed
from sparkinesis.lease.rules.former_streams import unread_former_streams
from sparkinesis.monitor.watched import QUIET, WatchedTable, unread_for
from sparkinesis.stream.address import STREAM_ARN, StreamAddress, StreamIdentifier, stream_address


@dataclass(frozen=True, slots=True)
class StreamSelector:
    """A stream that an operator names: by name, ARN or ``<account>:<stream>:<creation epoch>``."""

    text: str
    name: str
    account: str | None = None
    """None: of any account."""
    creation_epoch: int | None = None
    """None: all streams of the name, also those that were deleted."""
    region: str | None = None
    """The region of an ARN."""

    @classmethod
    def parse(cls, text: str) -> StreamSelector:
        """Read a name, an ARN or an identifier. Raises `OptionError`."""
        try:
            found = StreamIdentifier.parse(text)
        except ValueError:
            address: StreamAddress = stream_address(text)
        else:
            return cls(text, found.name, found.account, found.creation_epoch)
        if address.arn is None:
            return cls(text, address.name)
        assert STREAM_ARN.fullmatch(address.arn)
        return cls(text, address.name, address.account, None, address.region)

    def selects(self, stream: StreamIdentifier) -> bool:
        """Return True if this is the stream, or one of several of the name."""
        return (
            stream.name == self.name
            and self.account in {None, stream.account}
            and self.creation_epoch in {None, stream.creation_epoch}
        )


def selected(
    streams: Iterable[StreamIdentifier], selectors: Sequence[StreamSelector], table: str
) -> list[StreamIdentifier]:
    """Return the streams that the operator named, in order; without selectors, all of them.

    ``table``: the lease table's name and place. Raises `OptionError` for a selector that selects
    none of the streams.
    """
    ordered = sorted(set(streams), key=stream_order)
    if not selectors:
        return ordered
    for one in selectors:
        if not any(map(one.selects, ordered)):
            raise OptionError(
                f"No lease of the {table} is of the stream {one.text!r}. The table has leases of "
                f"{listed(shown_names(ordered).values())}."
            )
    return [stream for stream in ordered if any(one.selects(stream) for one in selectors)]


def stream_order(stream: StreamIdentifier) -> tuple[str, str, int]:
    """Return the sort key of a stream for people: its name comes first."""
    return stream.name, stream.account, stream.creation_epoch


def shown_names(streams: Iterable[StreamIdentifier]) -> dict[StreamIdentifier, str]:
    """Return the name of each stream, or its whole identifier if another one has the name, too."""
    distinct = sorted(set(streams), key=stream_order)
    count = Counter(stream.name for stream in distinct)
    return {one: one.name if count[one.name] == 1 else str(one) for one in distinct}


def replaced_streams(
    streams: Collection[StreamIdentifier],
) -> dict[StreamIdentifier, StreamIdentifier]:
    """Return the streams that were deleted and made anew, each with the newest of its name."""
    newest: dict[tuple[str, str], StreamIdentifier] = {}
    for one in sorted(streams):
        newest[one.account, one.name] = one
    last = {one: newest[one.account, one.name] for one in streams}
    return {one: newer for one, newer in last.items() if newer != one}


def unread_streams(watched: WatchedTable, quiet: float = QUIET) -> frozenset[StreamIdentifier]:
    """Return the streams of which no live worker reads a shard, while workers read other streams.

    Either the application no longer reads them, or no worker can. ``quiet``: an owner without
    renewals for so many seconds counts as dead.
    """
    unread = unread_former_streams(
        watched.leases, lambda _: False, expired=unread_for(watched, quiet).keys()
    )
    return frozenset() if unread >= watched.streams else unread


def stream_lines(
    names: Mapping[StreamIdentifier, str],
    replaced: Mapping[StreamIdentifier, StreamIdentifier],
    unread: Container[StreamIdentifier],
) -> list[str]:
    """Return lines about streams that were made anew, and about those that nobody reads.

    ``names``: those that are shown, with their names for people.
    """
    lines = []
    if others := [names[one] for one in names if one in unread and one not in replaced]:
        lines.append(
            f"No live worker reads {listed(others)}, while workers read other streams: the "
            "application no longer reads the stream, or its workers cannot read it."
        )
    if old := [f"{one} (now {replaced[one]})" for one in names if one in replaced]:
        lines.append(
            f"Deleted and made anew: {listed(old)}. Nobody reads the leases of the old stream."
        )
    return lines
