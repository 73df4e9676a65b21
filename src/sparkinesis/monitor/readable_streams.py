"""The streams of an application that a command moves: each of them has to be readable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkinesis.errors import LeaseTableError, OptionError, SparkinesisError, listed
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.stream.address import StreamIdentifier

if TYPE_CHECKING:
    from sparkinesis.lease.moving.application_reset import StreamToReset
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.stream.calls.stream_identity import StreamIdentity


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
    from sparkinesis.lease.moving.application_reset import StreamToReset  # noqa: PLC0415 - slow to import
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415

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
