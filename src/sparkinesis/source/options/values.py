"""Parsers of single options: each returns the value of an option's text, or raises `OptionError`.

Each takes the option's name and its text; None if the option is not given.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable

from sparkinesis.errors import OptionError
from sparkinesis.source.options.at_timestamp import has_at_timestamp, read_at_timestamp
from sparkinesis.stream.address import CONSUMER_NAME, REGION, TABLE_NAME, check_endpoint, shown
from sparkinesis.stream.credentials import DEFAULT_SESSION_NAME
from sparkinesis.stream.position import (
    FromApplication,
    InitialPosition,
    Position,
    parse_initial_position,
)
from sparkinesis.stream.reading.budget import FASTEST, SLOWEST

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

# As the API reference of STS has them (AssumeRole: RoleArn, RoleSessionName, ExternalId).
_ROLE_ARN = re.compile(
    r"arn:aws[a-z-]*:iam::[0-9]{12}:role/(?:[!-~]{1,510}/)?[a-zA-Z0-9_+=,.@-]{1,64}"
)
_SESSION_NAME = re.compile(r"[a-zA-Z0-9_+=,.@-]{2,64}")
_EXTERNAL_ID = re.compile(r"[a-zA-Z0-9_+=,.@:/-]{2,1224}")


_LONGEST = 3_652 * 86_400.0
"""Seconds: longer than any wait or retention, and short enough to add to any clock."""


def read_text(name: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise OptionError(f"The option {name} is empty. Leave it out or give it a value.")
    return value.strip() if value is not None else None


def read_region(name: str, value: str | None) -> str | None:
    region = read_text(name, value)
    if region is not None and not REGION.fullmatch(region):
        raise OptionError(
            f"The option {name} is {value!r}, which is not an AWS region. {nearest_region(region)}"
        )
    return region


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


def read_endpoint(name: str, value: str | None) -> str | None:
    endpoint = read_text(name, value)
    if endpoint is None:
        return None
    check_endpoint(f"The option {name}", endpoint)
    return endpoint


_APPLICATION = re.compile(r"application:(?P<name>.*)", re.IGNORECASE)


def read_initial_position(name: str, value: str | None) -> Position:
    """Read a position as `read_position` does, or ``application:NAME`` of a KCL application."""
    found = _APPLICATION.fullmatch((value or "").strip())
    if found is None:
        return read_position(name, value, ", or application:NAME of a KCL application")
    if not TABLE_NAME.fullmatch(found["name"]):
        raise OptionError(
            f"The option {name} is {value!r}; after application: it takes the name of a KCL "
            "application, which is the name of its DynamoDB table: 3 to 255 letters, digits, "
            "'_', '.' and '-'."
        )
    return FromApplication(found["name"])


def read_role_arn(name: str, value: str | None) -> str | None:
    arn = read_text(name, value)
    if arn is not None and not _ROLE_ARN.fullmatch(arn):
        raise OptionError(
            f"The option {name} is {value!r}; it takes the ARN of an IAM role, such as "
            "arn:aws:iam::123456789012:role/stream-reader."
        )
    return arn


def read_session_name(name: str, value: str | None) -> str:
    text = read_text(name, value)
    if text is not None and not _SESSION_NAME.fullmatch(text):
        raise OptionError(
            f"The option {name} is {value!r}; it takes 2 to 64 letters, digits and characters of "
            "_+=,.@-."
        )
    return text or DEFAULT_SESSION_NAME


def read_external_id(name: str, value: str | None) -> str | None:
    text = read_text(name, value)
    if text is not None and not _EXTERNAL_ID.fullmatch(text):
        raise OptionError(
            f"The value of the option {name} (not shown here) has {len(text)} characters; it takes "
            "2 to 1,224 letters, digits and characters of _+=,.@:/-."
        )
    return text


def read_consumer_mode(name: str, value: str | None) -> str:
    mode = (read_text(name, value) or "polling").lower()
    if mode not in {"polling", "efo"}:
        raise OptionError(
            f"The option {name} is {value!r}; it takes polling, or efo for enhanced fan-out."
        )
    return mode


def read_consumer_name(name: str, value: str | None) -> str | None:
    text = read_text(name, value)
    if text is not None and not CONSUMER_NAME.fullmatch(text):
        raise OptionError(
            f"The option {name} is {value!r}; it takes the name of a registered consumer, which "
            "need not exist yet: 1 to 128 letters, digits, '_', '.' and '-'."
        )
    return text


def read_position(name: str, value: str | None, others: str = "") -> InitialPosition:
    """Read ``latest`` (the default), ``trim_horizon`` or an instant. Raises `OptionError`.

    An instant may also be the JSON of Databricks' Kinesis source (`read_at_timestamp`). ``others``:
    the values that the option accepts besides, for the error's text.
    """
    if value is not None and has_at_timestamp(value):
        return read_at_timestamp(name, value)
    try:
        return parse_initial_position(read_text(name, value) or "latest", others)
    except ValueError as error:
        raise OptionError(f"The option {name} is {value!r}, {error}.") from None


def boolean(default: bool) -> Callable[[str, str | None], bool]:
    def read(name: str, value: str | None) -> bool:
        text = "" if value is None else value.strip().lower()
        if value is None:
            return default
        if text not in _TRUTH:
            raise OptionError(
                f"The option {name} is {value!r}; it takes true or false (or yes, no, on, off, 1, "
                "0)."
            )
        return _TRUTH[text]

    return read


def one_of(default: str, *others: str) -> Callable[[str, str | None], str]:
    """Return a parser of one of several words, in any case."""

    def read(name: str, value: str | None) -> str:
        text = default if value is None else value.strip().lower()
        if text not in {default, *others}:
            raise OptionError(
                f"The option {name} is {shown(text)}; it takes {' or '.join([default, *others])}."
            )
        return text

    return read


def integer(default: int, low: int, high: int) -> Callable[[str, str | None], int]:
    def read(name: str, value: str | None) -> int:
        text = str(default) if value is None else value.strip()
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise OptionError(
                f"The option {name} is {value!r}; it takes a whole number from {low} to {high}."
            )
        return int(text)

    return read


def age(name: str, value: str | None) -> float | None:
    """Return seconds; None if not given. 0 needs no unit."""
    if value is None:
        return None
    return 0.0 if value.strip() == "0" else duration(0.0)(name, value)


def drift(name: str, value: str | None) -> float:
    """Return seconds; 0 if not given, and infinity for ``unbounded``."""
    if value is None or value.strip() == "0":
        return 0.0
    if value.strip().lower() == "unbounded":
        return math.inf
    try:
        return duration(0.0)(name, value)
    except OptionError as error:
        raise OptionError(f"{str(error)[:-1]}, or unbounded.") from None


def limit(name: str, value: str | None) -> float:
    """Return a whole number above 0; infinity if not given."""
    return math.inf if value is None else integer(1, 1, 10**18)(name, value)


def size(name: str, value: str | None) -> float:
    """Return bytes, from a number and a unit as Spark writes sizes; infinity if not given."""
    if value is None:
        return math.inf
    found = _bytes(value)
    if not found:
        raise OptionError(
            f"The option {name} is {value!r}; it takes bytes, or a whole number above 0 and a "
            "unit, such as 512k, 64 MB or 1g (1 MB is 1,048,576 bytes)."
        )
    return float(found)


def size_within(default: int, low: int, high: int) -> Callable[[str, str | None], int]:
    """Return a parser of a size in bytes, written as `size` takes it."""

    def read(name: str, value: str | None) -> int:
        found = default if value is None else _bytes(value)
        if found is None or not low <= found <= high:
            raise OptionError(
                f"The option {name} is {value!r}; it takes bytes, or a whole number and a unit, "
                f"such as 100k or 1 MB; from {low} to {high}."
            )
        return found

    return read


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text.strip().lower())
    return int(found["number"]) * _SIZE_UNITS[found["unit"] or ""] if found else None


def rate(default: float) -> Callable[[str, str | None], float]:
    def read(name: str, value: str | None) -> float:
        text = str(default) if value is None else value.strip().lower()
        if text == "unlimited":
            return 0.0
        is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)
        if not is_number or not SLOWEST <= float(text) <= FASTEST:
            raise OptionError(
                f"The option {name} is {value!r}; it takes a number above 0, or unlimited for a "
                f"local Kinesis without limits; from {SLOWEST} to {FASTEST:,}."
            )
        return float(text)

    return read


def duration(default: float) -> Callable[[str, str | None], float]:
    def read(name: str, value: str | None) -> float:
        if value is None:
            return default
        found = _DURATION.fullmatch(value.strip().lower())
        if not found or found["unit"] not in _UNITS:
            raise OptionError(
                f"The option {name} is {value!r}; it takes a number and a unit, such as 400ms, 1s "
                "or 2 minutes."
            )
        seconds = float(found["number"]) * _UNITS[found["unit"]]
        if seconds > _LONGEST:
            raise OptionError(f"The option {name} is {value!r}; it takes ten years at most.")
        return seconds

    return read
