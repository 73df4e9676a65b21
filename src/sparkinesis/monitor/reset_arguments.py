"""The arguments of a reset: the position that an operator names, and the streams to move."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkinesis.errors import LeaseTableError, OptionError, SparkinesisError, listed
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.moving.application_reset import StreamToReset
from sparkinesis.lease.rules.reset_plan import ShardCheckpoint
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import InitialPosition, parse_initial_position

if TYPE_CHECKING:
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.monitor.chosen_streams import ChosenStreams
    from sparkinesis.stream.calls.stream_identity import StreamIdentity

_IN_SHARD = re.compile(r"([a-zA-Z0-9_.-]{1,128})=([0-9]{1,128})(?::([0-9]{1,18}))?")
_LONGEST = 300
_ONE_SHARD = (
    ", or SHARD=SEQUENCE_NUMBER or SHARD=SEQUENCE_NUMBER:SUB, the last user record of a shard that "
    "is done"
)


def parse_target(text: str) -> InitialPosition | ShardCheckpoint:
    """Read ``latest``, ``trim_horizon``, an instant, or ``SHARD=SEQUENCE_NUMBER[:SUB]``.

    See `parse_initial_position` for the first three. Without a sub-sequence number, only the first
    user record of the record counts as done, as in the KCL. Raises `OptionError`.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        raise OptionError(f"{text[:_LONGEST]!r}... is too long for a position.")
    if "=" in text:
        found = _IN_SHARD.fullmatch(text)
        if found is None:
            raise OptionError(
                f"{text!r} is not a position in a shard; it must be SHARD=SEQUENCE_NUMBER or "
                "SHARD=SEQUENCE_NUMBER:SUB, with digits after the equals sign."
            )
        return ShardCheckpoint(found[1], ExtendedSequenceNumber(found[2], int(found[3] or 0)))
    try:
        return parse_initial_position(text, _ONE_SHARD)
    except ValueError as error:
        raise OptionError(f"The position is {text!r}, {error}.") from None


@dataclass(frozen=True)
class FoundStreams:
    """The streams to move an application in."""

    streams: Sequence[StreamToReset]
    told: str
    """The streams, for the question to the operator."""
    notes: Sequence[str] = ()


def find_streams(options: ChosenStreams, table: LeaseTable) -> FoundStreams:
    """Return the streams that the operator names, or all that the leases name.

    Raises `OptionError` and service errors, also if only one of the streams cannot be read.
    """
    scan = table.scan()
    several = scan.several_streams
    if not several.leases:
        address = options.only()
        if address is None:
            raise OptionError(
                f"The leases of the {table} name no stream, as it is the only one of the "
                "application. Name it by --stream."
            )
        return FoundStreams([StreamToReset(StreamClient(address))], f"the {address}")
    if one := scan.single_stream.leases:
        raise LeaseTableError(
            f"The {table} has leases that name a stream, and {len(one)} that name none, such as "
            f"{one[0].key}: those of an application of a single stream. Only one kind can be in "
            "use. Nothing was written. Finish `sparkinesis convert-leases` if it was cut short, or "
            "else delete the rows that no application reads."
        )
    found = options.identified(options.of_table(several.leases, table))
    gone = _made_anew({stream: identity for stream, (_, identity) in found.items()})
    kept = [stream for stream in found if stream not in gone]
    names = listed(stream.name for stream in kept)
    return FoundStreams(
        [StreamToReset(found[stream][0], stream) for stream in kept],
        f"{len(kept)} streams ({names})" if len(kept) > 1 else f"the {options.address_of(kept[0])}",
        [
            f"{stream} was deleted and made anew as {newer}: its leases stay as they are."
            for stream, newer in gone.items()
        ],
    )


def _made_anew(
    found: Mapping[StreamIdentifier, StreamIdentity | SparkinesisError],
) -> dict[StreamIdentifier, StreamIdentifier]:
    """Return the streams that were deleted, and made anew as others of the streams.

    ``found``: what the service has by the address of each. Raises the first error, with the way
    out, and `OptionError` for a stream that was made anew as none of them.
    """
    gone: dict[StreamIdentifier, StreamIdentifier] = {}
    for stream, result in found.items():
        if isinstance(result, SparkinesisError):
            raise type(result)(
                f"The table has leases of {stream}, which cannot be read: {result} Nothing was "
                "written. To reset in other streams only, name each of them by --stream; a stream "
                "of another region is named by its ARN."
            )
        if result.identifier not in found:
            raise OptionError(
                f"The leases of {stream} are those of a deleted stream, which was made anew as "
                f"{result.identifier}: they cannot be moved. Nothing was written. To reset in "
                "other streams only, name each of them by --stream."
            )
        if result.identifier != stream:
            gone[stream] = result.identifier
    return gone
