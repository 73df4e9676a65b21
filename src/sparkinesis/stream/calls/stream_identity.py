"""Finds what distinguishes a stream from others of its name: its ARN and its creation time."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec

from sparkinesis.errors import (
    AccessDeniedError,
    OptionError,
    ServiceError,
    SparkinesisError,
    StreamNotFoundError,
)
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.answers.guards import text
from sparkinesis.stream.calls.client import StreamClient, created_ms
from sparkinesis.stream.calls.shared_calls import BETWEEN

_WORTH_A_LIST = 10
"""From this many streams of an account on, ListStreams is asked: it answers for all of them."""
_BETWEEN_DESCRIBES = BETWEEN["DescribeStreamSummary"]
_STREAMS_OF_A_PAGE = 100
"""The most streams that an answer of ListStreams holds (API reference)."""
BETWEEN_STREAM_PAGES = 0.25
"""Seconds: an account may call ListStreams 5 times a second (API reference)."""


class StreamIdentity(msgspec.Struct, frozen=True):
    """A stream's ARN and identifier, and the time of the answer that had them."""

    arn: str
    identifier: StreamIdentifier
    service_time_ms: int
    """By the service's clock (epoch ms)."""
    at: float
    """By the caller's clock."""
    was_listed: bool = False
    """True if it comes from ListStreams, which costs no call for this stream alone."""


Found = dict[StreamAddress, StreamIdentity | SparkinesisError]
"""The identity of each stream, or the error of the call that asked for it."""


def place_of(address: StreamAddress) -> Hashable:
    """Return the place of a stream: one ListStreams call answers for all streams of a place."""
    return address.region, address.endpoint, address.credentials


def by_place(addresses: Iterable[StreamAddress]) -> list[list[StreamAddress]]:
    """Group streams by their places."""
    groups: dict[Hashable, list[StreamAddress]] = defaultdict(list)
    for address in addresses:
        groups[place_of(address)].append(address)
    return list(groups.values())


def identify_some(
    addresses: Iterable[StreamAddress],
    client_of: Callable[[StreamAddress], StreamClient],
    clock: Callable[[], float],
    wait: Callable[[float], object],
) -> Found:
    """Return the results of `identify` for as many streams as can be asked for now.

    The rest is left out after a call that failed for a reason that others may share, such as
    throttling, and once ``wait`` returns True.
    """
    found: Found = {}
    for address, result in identify(addresses, client_of, clock, wait):
        found[address] = result
        if isinstance(result, ServiceError):
            break
    return found


def identify(
    addresses: Iterable[StreamAddress],
    client_of: Callable[[StreamAddress], StreamClient],
    clock: Callable[[], float],
    wait: Callable[[float], object],
) -> Iterator[tuple[StreamAddress, StreamIdentity | SparkinesisError]]:
    """Yield the identity of each stream, or the error of the call that asked for it, once known.

    Many streams of one account and region take one ListStreams call for each hundred; otherwise,
    and for streams of other accounts, each takes one DescribeStreamSummary call. Ends once ``wait``
    returns True.
    """
    for group in by_place(addresses):
        listed: Mapping[str, StreamIdentity] = {}
        if len(group) >= _WORTH_A_LIST:
            listed = _listed(client_of(group[0]), group, clock)
        rest: list[StreamAddress] = []
        for address in group:
            one = listed.get(address.name)
            if one is not None and address.arn in {None, one.arn}:
                yield address, one
            else:
                rest.append(address)
        for number, address in enumerate(rest):
            if number and wait(_BETWEEN_DESCRIBES):
                return
            yield address, described(client_of(address), clock)


def _listed(
    client: StreamClient, wanted: Sequence[StreamAddress], clock: Callable[[], float]
) -> dict[str, StreamIdentity]:
    """Return streams of the client's account and region; none if it may not list them.

    An account may have far more streams than are wanted: the listing ends with the last wanted
    stream, or when describing each of them would have taken no longer.
    """
    most_pages = max(1, round(len(wanted) * _BETWEEN_DESCRIBES / BETWEEN_STREAM_PAGES))
    names = {address.name for address in wanted}
    try:
        return {
            identity.identifier.name: identity
            for identity in (
                StreamIdentity(
                    arn, StreamIdentifier.of(arn, created), now_ms, clock(), was_listed=True
                )
                for arn, created, now_ms in list_streams(client, names, most_pages)
                if created
            )
        }
    except (AccessDeniedError, ServiceError):
        return {}


def list_streams(
    client: StreamClient, wanted: Collection[str], most_pages: int
) -> list[tuple[str, int, int]]:
    """Call ListStreams until all ``wanted`` names are found, or for ``most_pages`` pages.

    Returns the ARN and the creation time (epoch ms; 0: unknown) of each listed stream of the
    account and region that can be read, with the service's clock (epoch ms) at the answer.
    """
    request: dict[str, Any] = {"Limit": _STREAMS_OF_A_PAGE}
    found: list[tuple[str, int, int]] = []
    missing = set(wanted)
    while True:
        sent_ms = client.wall_clock_ms()
        answer, streams = client.call(
            "ListStreams",
            lambda c: _readable_streams(c.list_streams(**request)),  # noqa: B023
        )
        now_ms = client.service_time(answer, sent_ms)
        found += [(arn, created, now_ms) for _, arn, created in streams]
        missing.difference_update(name for name, _, _ in streams)
        token, most_pages = answer.get("NextToken"), most_pages - 1
        if not token or not missing or most_pages <= 0:
            return found
        request = {"Limit": _STREAMS_OF_A_PAGE, "NextToken": token}
        client.wait(BETWEEN_STREAM_PAGES)


def _readable_streams(
    answer: Mapping[str, Any],
) -> tuple[Mapping[str, Any], list[tuple[str, str, int]]]:
    """Return an answer of ListStreams, and the name, ARN and creation time of those to be read."""
    streams = [
        (text(one["StreamName"]), text(one["StreamARN"]), created_ms(one))
        for one in answer.get("StreamSummaries", ())
        if one.get("StreamStatus") not in {"CREATING", "DELETING"}
    ]
    return answer, streams


def described(
    client: StreamClient, clock: Callable[[], float]
) -> StreamIdentity | SparkinesisError:
    """Return a stream's identity by a call of its own, or the error of that call."""
    try:
        summary = client.describe()
    except SparkinesisError as error:
        return error
    if not summary.created_ms:
        return OptionError(
            f"DescribeStreamSummary returned no creation time of {client.address}, which the "
            "leases of several streams are named by. Read this stream with an application of its "
            "own: Application(stream=...)."
        )
    arn = client.stream_arn()
    identifier = StreamIdentifier.of(arn, summary.created_ms)
    return StreamIdentity(arn, identifier, summary.service_time_ms, clock())


def require_same(
    address: StreamAddress, found: StreamIdentity | SparkinesisError, stream: StreamIdentifier
) -> None:
    """Raise `StreamNotFoundError` if a later stream of the name was found; raise a found error."""
    if isinstance(found, SparkinesisError):
        raise found
    if found.identifier != stream:
        created = datetime.fromtimestamp(found.identifier.creation_epoch, timezone.utc)
        raise StreamNotFoundError(
            f"{address} was deleted, and made anew at {created.isoformat()}: its records "
            f"belong to the leases of {found.identifier}, not to those of {stream}."
        )


class SameStreams:
    """Checks that streams are still those that a worker opened, not later ones of the same names.

    For any thread: threads that ask at about the same time share a call. Calls keep the distance
    that the account's limits require.
    """

    def __init__(
        self,
        client_of: Callable[[StreamAddress], StreamClient],
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._client_of = client_of
        self._clock = clock
        self._sleep = sleep
        self._asked: dict[Hashable, float] = {}
        """The time of each place's last call."""
        self._lock = threading.Lock()
        self._places: dict[Hashable, threading.Lock] = {}
        self._seen: dict[StreamAddress, tuple[float, StreamIdentity | SparkinesisError]] = {}
        """The last answers, and when they were asked for."""
        self._watched: dict[Hashable, tuple[StreamAddress, ...]] = {}
        """The streams to ask for together, by place."""

    def watch(self, addresses: Iterable[StreamAddress]) -> None:
        """Ask for these streams together from now on."""
        groups = by_place(addresses)
        self._watched = {place_of(group[0]): tuple(group) for group in groups}

    def require(self, address: StreamAddress, stream: StreamIdentifier, since: float) -> None:
        """Raise `StreamNotFoundError` unless the stream still existed at ``since``, by ``clock``.

        Also raises the errors of the calls, after which nothing is known of the stream.
        """
        place = place_of(address)
        with self._lock:
            lock = self._places.setdefault(place, threading.Lock())
        with lock:
            if self._seen.get(address, (since - 1, None))[0] < since:
                self._ask(place, address)
            found = self._seen[address][1]
        require_same(address, found, stream)

    def _ask(self, place: Hashable, address: StreamAddress) -> None:
        others = self._watched.get(place, ())
        may_list = len(others) >= _WORTH_A_LIST
        apart = BETWEEN_STREAM_PAGES if may_list else _BETWEEN_DESCRIBES
        wait = self._asked.get(place, float("-inf")) + apart - self._clock()
        if wait > 0:
            self._sleep(wait)
        began = self._clock()
        found: Found = {}
        if may_list:
            listed = _listed(self._client_of(address), others, self._clock)
            found = {
                one: listed[one.name]
                for one in others
                if one.name in listed and one.arn in {None, listed[one.name].arn}
            }
        if address not in found:
            found[address] = described(self._client_of(address), self._clock)
        self._asked[place] = self._clock()
        for one, identity in found.items():
            self._seen[one] = began, identity
