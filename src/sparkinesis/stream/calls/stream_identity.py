"""Finds what distinguishes streams from others of the same name: their ARNs and creation times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkinesis.errors import (
    AccessDeniedError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import BETWEEN_STREAM_PAGES, StreamClient
from sparkinesis.stream.identifier import StreamIdentifier

_WORTH_A_LIST = 10
"""From this many streams of an account on, ListStreams is asked: it answers for all of them."""
_BETWEEN_DESCRIBES = 0.1
"""Seconds: an account may call DescribeStreamSummary 20 times a second (API reference), and other
workers ask, too."""


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """A stream's ARN and identifier, and the time of the answer that told them."""

    arn: str
    identifier: StreamIdentifier
    service_time_ms: int
    """By the service's clock (epoch ms)."""
    at: float
    """By the caller's clock."""


def identify(
    addresses: Iterable[StreamAddress],
    client_of: Callable[[StreamAddress], StreamClient],
    clock: Callable[[], float],
    wait: Callable[[float], object],
) -> dict[StreamAddress, StreamIdentity | SparkinesisError]:
    """Return the identity of each stream, or the error of the call that asked for it.

    Many streams of one account and region take one ListStreams call for each hundred; otherwise,
    and for streams of other accounts, each takes one DescribeStreamSummary call.
    """
    return dict(identify_each(addresses, client_of, clock, wait))


def identify_each(
    addresses: Iterable[StreamAddress],
    client_of: Callable[[StreamAddress], StreamClient],
    clock: Callable[[], float],
    wait: Callable[[float], object],
) -> Iterator[tuple[StreamAddress, StreamIdentity | SparkinesisError]]:
    """Yield the same, each stream as soon as it is known."""
    by_place: dict[object, list[StreamAddress]] = defaultdict(list)
    for address in addresses:
        by_place[address.region, address.endpoint, address.credentials].append(address)
    for group in by_place.values():
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
            if number:
                wait(_BETWEEN_DESCRIBES)
            yield address, _described(client_of(address), clock)


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
                StreamIdentity(arn, StreamIdentifier.of(arn, created_ms), now_ms, clock())
                for arn, created_ms, now_ms in client.list_streams(names, most_pages)
                if created_ms
            )
        }
    except (AccessDeniedError, ServiceError):
        return {}


def _described(
    client: StreamClient, clock: Callable[[], float]
) -> StreamIdentity | SparkinesisError:
    try:
        summary = client.describe()
    except SparkinesisError as error:
        return error
    if not summary.created_ms:
        return ServiceError(
            f"DescribeStreamSummary returned no creation time of {client.address}, which the "
            "leases of several streams are named by. Read this stream with an application of its "
            "own: Application(stream=...)."
        )
    arn = client.stream_arn()
    identifier = StreamIdentifier.of(arn, summary.created_ms)
    return StreamIdentity(arn, identifier, summary.service_time_ms, clock())
