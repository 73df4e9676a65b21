"""Where to move an application, as an operator writes it. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from sparkinesis.errors import OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.beginning import InitialPosition
from sparkinesis.lease.rules.reset import InShard
from sparkinesis.stream.position import END_OF_TIME_MS, LATEST, TRIM_HORIZON, AtTimestamp

_NAMED: dict[str, InitialPosition] = {"latest": LATEST, "trim_horizon": TRIM_HORIZON}
_IN_SHARD = re.compile(r"([a-zA-Z0-9_.-]{1,128})=([0-9]{1,128})(?::([0-9]{1,18}))?")
_LONGEST = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FORMS = (
    "It takes latest, trim_horizon, an instant with its time zone in ISO 8601, such as "
    "2026-11-21T08:30:00Z, or SHARD=SEQUENCE_NUMBER or SHARD=SEQUENCE_NUMBER:SUB, the last user "
    "record of a shard that is done."
)


def parse_target(text: str) -> InitialPosition | InShard:
    """Read ``latest``, ``trim_horizon``, an instant, or ``SHARD=SEQUENCE_NUMBER[:SUB]``.

    Names are in any case. Without a sub-sequence number the first user record of the record is
    done, as in the KCL. Raises `OptionError`.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        raise OptionError(f"{text[:_LONGEST]!r}... is too long to be a place. {_FORMS}")
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    if "=" in text:
        found = _IN_SHARD.fullmatch(text)
        if found is None:
            raise OptionError(f"{text!r} is not a place in a shard. {_FORMS}")
        return InShard(found[1], ExtendedSequenceNumber(found[2], int(found[3] or 0)))
    try:
        # Python 3.10 does not read a trailing Z.
        instant = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise OptionError(f"{text!r} is no place to move an application to. {_FORMS}") from None
    if instant.tzinfo is None:
        raise OptionError(
            f"{text!r} has no time zone. Say which is meant, for instance "
            f"{instant.isoformat()}Z or {instant.isoformat()}+01:00."
        )
    ms = (instant - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms < END_OF_TIME_MS:
        raise OptionError(f"{text!r} is an instant before 1970, or after 9999.")
    return AtTimestamp(ms)
