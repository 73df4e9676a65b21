"""Parses the position to which an operator moves an application. Pure."""

from __future__ import annotations

import re

from sparkinesis.errors import OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.reset import ShardCheckpoint
from sparkinesis.stream.position import InitialPosition, parse_initial_position

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
