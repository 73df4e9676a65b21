"""The streams of a lease table: which an operator chooses, their names, and which are not read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError, SparkinesisError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import unread_former_streams
from sparkinesis.monitor.watched import QUIET, WatchedTable, unread_for
from sparkinesis.stream.address import (
    STREAM_ARN,
    CredentialSource,
    StreamAddress,
    StreamIdentifier,
    address_of,
    check_place,
    check_table_name,
    stream_address,
)

if TYPE_CHECKING:
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.monitor.lags import LagStreams
    from sparkinesis.stream.calls.client import StreamClient
    from sparkinesis.stream.calls.stream_identity import StreamIdentity


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


@dataclass(frozen=True)
class ChosenStreams:
    """The streams that ``--stream`` names, and where they and the lease table are."""

    selectors: tuple[StreamSelector, ...]
    region: str | None
    endpoint: str | None
    credentials: CredentialSource
    _addresses: dict[StreamIdentifier, StreamAddress] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        streams: Sequence[str] | None,
        region: str | None,
        endpoint: str | None,
        credentials: CredentialSource,
    ) -> ChosenStreams:
        """Read the options; without streams, all of the application are chosen.

        Raises `OptionError`.
        """
        check_place(region, endpoint)
        selectors = tuple(map(StreamSelector.parse, streams or ()))
        return cls(selectors, region, endpoint, credentials)

    def table(self, name: str, dynamodb_endpoint: str | None) -> LeaseTable:
        """Return the lease table: in ``--region``, or else in the region of the streams' ARNs."""
        named = {one.region for one in self.selectors if one.region is not None}
        region = self.region or (next(iter(named)) if len(named) == 1 else None)
        endpoint = dynamodb_endpoint or self.endpoint
        check_table_name("APP", name)
        check_place(region, endpoint)
        # boto3 is slow to import, and not all commands need it.
        from sparkinesis.lease.table.table import LeaseTable  # noqa: PLC0415

        return LeaseTable(name, region, endpoint, self.credentials)

    def only(self) -> StreamAddress | None:
        """Return the address of the stream of a table whose leases name none; None: not given.

        Raises `OptionError` if several streams are given, or an identifier.
        """
        if not self.selectors:
            return None
        if len(self.selectors) > 1:
            names = ", ".join(one.text for one in self.selectors)
            raise OptionError(
                f"The leases are those of one stream, and --stream names several: {names}. Name "
                "the stream that the application reads."
            )
        (one,) = self.selectors
        if one.creation_epoch is not None:
            raise OptionError(
                f"The leases name no stream, so {one.text} cannot be told from other streams of "
                "the name. Give --stream a name or an ARN."
            )
        return stream_address(one.text, self.region, self.endpoint, self.credentials)

    def of_table(self, leases: Iterable[Lease], table: LeaseTable) -> list[StreamIdentifier]:
        """Return the streams that leases name, and the operator wants. Raises `OptionError`."""
        streams = {lease.stream for lease in leases if lease.stream is not None}
        return selected(streams, self.selectors, str(table)) if streams else []

    def wanted(self, streams: Iterable[StreamIdentifier]) -> frozenset[StreamIdentifier]:
        """Return the streams that the operator wants; none of them may be there."""
        every = frozenset(streams)
        if not self.selectors:
            return every
        return frozenset(one for one in every if any(by.selects(one) for by in self.selectors))

    def address_of(self, stream: StreamIdentifier) -> StreamAddress:
        """Return the address of a stream that a lease names: by its ARN. Raises `OptionError`.

        The region is that of the ARN which names the stream, or else ``--region``.
        """
        found = self._addresses.get(stream)
        if found is None:
            regions = [one.region for one in self.selectors if one.region and one.selects(stream)]
            region = regions[0] if regions else self.region
            found = address_of(stream, region, self.endpoint, self.credentials)
            self._addresses[stream] = found
        return found

    def identified(
        self, streams: Iterable[StreamIdentifier]
    ) -> dict[StreamIdentifier, tuple[StreamClient, StreamIdentity | SparkinesisError]]:
        """Ask the service for streams that leases name; return what it has by each one's address.

        It may be another stream, which was made anew. Each comes with the client of the address.
        """
        from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415 - slow to import
        from sparkinesis.stream.calls.stream_identity import identify  # noqa: PLC0415

        addresses = {stream: self.address_of(stream) for stream in streams}
        clients = {address: StreamClient(address) for address in addresses.values()}
        found = dict(identify(clients, clients.__getitem__, time.monotonic, time.sleep))
        return {stream: (clients[at], found[at]) for stream, at in addresses.items()}

    def lag_streams(
        self, leases: Iterable[Lease], table: LeaseTable, give_up_after: float = 20.0
    ) -> LagStreams:
        """Return the clients that read lags.

        ``leases``: those of the table. A misspelled stream fails at once: if they name none, the
        given one is described. Raises `OptionError` and service errors.
        """
        from sparkinesis.monitor.lags import (  # noqa: PLC0415 - slow to import
            LagStreams,
            lag_client,
        )

        every = list(leases)
        self.of_table(every, table)
        address = self._only_of(every)
        only = None
        if address is not None:
            only = lag_client(address, give_up_after)
            only.describe()
        return LagStreams(only, self.address_of, lambda at: lag_client(at, give_up_after))

    def _only_of(self, leases: Sequence[Lease]) -> StreamAddress | None:
        """Return the address of the stream of leases that name none; None: none is to be read."""
        kinds = {lease.stream is None for lease in leases}
        if kinds == {True}:
            return self.only()
        # Rows of both kinds, or none yet: the given stream is that of rows without a name, if it
        # can be.
        is_one = len(self.selectors) == 1 and self.selectors[0].creation_epoch is None
        return self.only() if kinds != {False} and is_one else None


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
    """Return the streams without a live worker on any shard, while workers read other streams.

    Either the application no longer reads them, or no worker can. ``quiet``: an owner without
    renewals for as many seconds counts as dead.
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
    """Return lines about streams that were made anew, and about those that are not read.

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
