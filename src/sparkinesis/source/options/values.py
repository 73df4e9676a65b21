"""Parsers of options: each returns the value of an option's text, or raises `OptionError`.

Each takes the option's name, for the error, and its text.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from sparkinesis.errors import OffsetError, OptionError
from sparkinesis.stream.address import (
    CONSUMER_NAME,
    REGION,
    STREAM_ARN,
    STREAM_NAME,
    StreamAddress,
    check_endpoint,
    shown,
)
from sparkinesis.stream.reading.budget import FASTEST, SLOWEST

_T = TypeVar("_T")

Parser: TypeAlias = Callable[[str, str], _T]

_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[a-z]*)")
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})\s*(?:(?P<unit>[kmgt]?)(?:i?b)?|bytes?)")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_UNITS = {
    **dict.fromkeys(("ms", "millis", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_LONGEST = 3_652 * 86_400.0
"""Seconds: longer than any wait or retention, and short enough to add to any clock."""


def _refusal(name: str, value: str, takes: str) -> OptionError:
    return OptionError(f"The option {name} is {value!r}; it takes {takes}.")


def text(name: str, value: str) -> str:
    """Return the text without spaces around it; an empty one is refused."""
    if not value.strip():
        raise OptionError(f"The option {name} is empty. Leave it out or give it a value.")
    return value.strip()


def matching(pattern: re.Pattern[str], takes: str) -> Parser[str]:
    """Return a parser of texts of a pattern; ``takes`` says which they are."""

    def parse(name: str, value: str) -> str:
        found = text(name, value)
        if not pattern.fullmatch(found):
            raise _refusal(name, value, takes)
        return found

    return parse


# As the API reference of STS has them (AssumeRole: RoleArn, RoleSessionName, ExternalId).
role_arn = matching(
    re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/(?:[!-~]{1,510}/)?[a-zA-Z0-9_+=,.@-]{1,64}"),
    "the ARN of an IAM role, such as arn:aws:iam::123456789012:role/stream-reader",
)
session_name = matching(
    re.compile(r"[a-zA-Z0-9_+=,.@-]{2,64}"),
    "2 to 64 letters, digits and characters of _+=,.@-",
)
consumer_name = matching(
    CONSUMER_NAME,
    "the name of a registered consumer, which need not exist yet: 1 to 128 letters, digits, '_', "
    "'.' and '-'",
)


def external_id(name: str, value: str) -> str:
    found = text(name, value)
    if not re.fullmatch(r"[a-zA-Z0-9_+=,.@:/-]{2,1224}", found):
        raise OptionError(
            f"The value of the option {name} (not shown here) has {len(found)} characters; it "
            "takes 2 to 1,224 letters, digits and characters of _+=,.@:/-."
        )
    return found


def region(name: str, value: str) -> str:
    found = text(name, value)
    if not REGION.fullmatch(found):
        raise OptionError(
            f"The option {name} is {value!r}, which is not an AWS region. {nearest_region(found)}"
        )
    return found


def nearest_region(region: str) -> str:
    known = known_regions()
    near = difflib.get_close_matches(region.lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else "It looks like eu-west-1."


@functools.cache
def known_regions() -> tuple[str, ...]:
    """Return the regions in which botocore's endpoint data has Kinesis; read once a process."""
    from sparkinesis.stream.calls.session import new_session  # noqa: PLC0415 - slow to import

    session = new_session()
    return tuple(
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("kinesis", partition_name=partition)
    )


def endpoint(name: str, value: str) -> str:
    found = text(name, value)
    check_endpoint(f"The option {name}", found)
    return found


def consumer_mode(name: str, value: str) -> str:
    mode = text(name, value).lower()
    if mode not in {"polling", "efo"}:
        raise _refusal(name, value, "polling, or efo for enhanced fan-out")
    return mode


def boolean(name: str, value: str) -> bool:
    truth = _TRUTH.get(value.strip().lower())
    if truth is None:
        raise _refusal(name, value, "true or false (or yes, no, on, off, 1, 0)")
    return truth


def one_of(*words: str) -> Parser[str]:
    """Return a parser of one of several words, in any case."""

    def parse(name: str, value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise OptionError(f"The option {name} is {shown(word)}; it takes {' or '.join(words)}.")
        return word

    return parse


def some_of(*words: str) -> Parser[tuple[str, ...]]:
    """Return a parser of one or more of several words, with commas between them, in any case."""
    known = {word.lower(): word for word in words}

    def parse(name: str, value: str) -> tuple[str, ...]:
        found = [word.strip().lower() for word in value.split(",")]
        for number, word in enumerate(found):
            if word not in known:
                takes = f"one or more of {', '.join(words)}"
                raise OptionError(f"The option {name} has {shown(word)}; it takes {takes}.")
            if word in found[:number]:
                raise OptionError(f"The option {name} has {known[word]} twice.")
        return tuple(known[word] for word in found)

    return parse


def integer(low: int, high: int = 10**18 - 1) -> Parser[int]:
    """Return the parser of a whole number; ``high`` has 18 digits at most."""

    def parse(name: str, value: str) -> int:
        digits = value.strip()
        if not re.fullmatch(r"[0-9]{1,18}", digits) or not low <= int(digits) <= high:
            raise _refusal(name, value, f"a whole number from {low} to {high}")
        return int(digits)

    return parse


def duration(name: str, value: str) -> float:
    """Return seconds."""
    found = _DURATION.fullmatch(value.strip().lower())
    if not found or found["unit"] not in _UNITS:
        raise _refusal(name, value, "a number and a unit, such as 400ms, 1s or 2 minutes")
    seconds = float(found["number"]) * _UNITS[found["unit"]]
    if seconds > _LONGEST:
        raise _refusal(name, value, "ten years at most")
    return seconds


def age(name: str, value: str) -> float:
    """Return seconds. 0 needs no unit."""
    return 0.0 if value.strip() == "0" else duration(name, value)


def drift(name: str, value: str) -> float:
    """Return seconds, and infinity for ``unbounded``."""
    if value.strip().lower() == "unbounded":
        return math.inf
    try:
        return age(name, value)
    except OptionError as error:
        raise OptionError(f"{str(error)[:-1]}, or unbounded.") from None


def size(name: str, value: str) -> float:
    """Return bytes, from a number and a unit as Spark writes sizes."""
    found = _bytes(value)
    if not found:
        raise _refusal(
            name,
            value,
            "bytes, or a whole number above 0 and a unit, such as 512k, 64 MB or 1g (1 MB is "
            "1,048,576 bytes)",
        )
    return float(found)


def size_within(low: int, high: int) -> Parser[int]:
    """Return a parser of a size in bytes, written as `size` takes it."""

    def parse(name: str, value: str) -> int:
        found = _bytes(value)
        if found is None or not low <= found <= high:
            raise _refusal(
                name,
                value,
                f"bytes, or a whole number and a unit, such as 100k or 1 MB; from {low} to {high}",
            )
        return found

    return parse


def _bytes(value: str) -> int | None:
    found = _SIZE.fullmatch(value.strip().lower())
    return int(found["number"]) * _SIZE_UNITS[found["unit"] or ""] if found else None


def rate(name: str, value: str) -> float:
    number = value.strip().lower()
    if number == "unlimited":
        return 0.0
    is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", number)
    if not is_number or not SLOWEST <= float(number) <= FASTEST:
        raise _refusal(
            name,
            value,
            "a number above 0, or unlimited for a local Kinesis without limits; "
            f"from {SLOWEST} to {FASTEST:,}",
        )
    return float(number)


def stream_addresses(
    names: str | None, arns: str | None, region: str | None, endpoint: str | None
) -> tuple[StreamAddress, ...]:
    if (names is None) == (arns is None):
        raise OptionError(
            "The stream to use is not clear. Give either the option streamName or the option "
            + ("streamARN, not both." if names is not None else "streamARN.")
        )
    if arns is not None:
        found = [_by_arn(arn, region, endpoint) for arn in _listed("streamARN", arns)]
    else:
        assert names is not None
        found = [_by_name(name, region, endpoint) for name in _listed("streamName", names)]
    regions = {address.region for address in found}
    if len(regions) > 1:
        raise OptionError(
            f"The option streamARN names streams in {_and(sorted(map(str, regions)))}; one source "
            "reads one region. Load a DataFrame for each region and union them."
        )
    twice = sorted({a.name for a in found if [b.name for b in found].count(a.name) > 1})
    if twice:
        raise OptionError(
            f"The stream {_and(twice)} is named more than once. The column stream and the offsets "
            "in the checkpoint identify a stream by its name. Load a DataFrame for each stream and "
            "union them."
        )
    return tuple(found)


def removed_stream(name: str, others: Sequence[StreamAddress]) -> StreamAddress:
    """Return the address of a stream that is no longer among those of a query, ``others``.

    Offsets name streams without their place. All streams of a query are in one place, unless their
    ARNs are of several accounts: then this raises `OffsetError`.
    """
    first = others[0]
    places = {address.arn.rpartition("/")[0] for address in others if address.arn}
    if len(places) > 1:
        raise OffsetError(
            f"A batch of the checkpoint was planned with rows of stream {shown(name)}, which the "
            "option streamARN no longer names, and the streams that it names are of several "
            f"accounts. Name {shown(name)} once more until that batch is finished."
        )
    return replace(first, name=name, arn=f"{places.pop()}/{name}" if places else None)


def _and(words: Sequence[str]) -> str:
    return " and ".join(words)


def _listed(option: Literal["streamName", "streamARN"], text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise OptionError(
            f"The option {option} is {shown(text)}, which has an empty entry between its commas."
        )
    return parts


def _by_arn(arn: str, region: str | None, endpoint: str | None) -> StreamAddress:
    found = STREAM_ARN.fullmatch(arn)
    if not found:
        raise OptionError(
            f"The option streamARN is {shown(arn)}; it takes the ARN of a stream, such as "
            "arn:aws:kinesis:eu-west-1:123456789012:stream/flights."
        )
    if region is not None and region != found["region"]:
        raise OptionError(
            f"The option streamARN names a stream in {found['region']}, but the option region "
            f"is {region}. Leave out the option region: the ARN contains it."
        )
    return StreamAddress(found["name"], arn, found["region"], endpoint, is_querys=True)


def _by_name(name: str, region: str | None, endpoint: str | None) -> StreamAddress:
    if not STREAM_NAME.fullmatch(name):
        raise OptionError(
            f"The option streamName is {shown(name)}; it takes the name of a stream, or several "
            "names separated by commas: 1 to 128 letters, digits, '_', '.' and '-' each."
        )
    if region is not None and endpoint is None and region not in known_regions():
        raise OptionError(
            f"The option region is {region!r}, and boto3 knows no Kinesis in that region. "
            f"{nearest_region(region)} If it is a new region, update boto3."
        )
    return StreamAddress(name, None, region, endpoint, is_querys=True)
