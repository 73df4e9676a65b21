"""What the value of one property may be: functions from its text to a value, or ValueError."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Literal

from sparkinesis.stream.address import is_url

_STREAM_ARN = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}"
    r":stream/(?P<name>[a-zA-Z0-9_.-]{1,128})"
)
_MAX_SECONDS = 10**11
"""The year 5138: an instant beyond is meant in milliseconds."""


def text(value: str) -> str:
    return value


def name(what: str, shortest: int, longest: int) -> Callable[[str], str]:
    """Letters, digits, '_', '.' and '-', as Kinesis and DynamoDB have them."""

    def read(value: str) -> str:
        if not re.fullmatch(rf"[a-zA-Z0-9_.-]{{{shortest},{longest}}}", value):
            raise ValueError(
                f"{what} has {shortest} to {longest} letters, digits, '_', '.' and '-'"
            )
        return value

    return read


def boolean(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("it takes true or false")
    return value.lower() == "true"


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", value) or not low <= int(value) <= high:
            raise ValueError(f"it takes a whole number from {low} to {high}")
        return int(value)

    return read


def millis(low: int = 0) -> Callable[[str], float]:
    """Seconds, from a whole number of milliseconds."""

    def read(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,15}", value) or int(value) < low:
            raise ValueError(f"it takes milliseconds, a whole number of at least {low}")
        return int(value) / 1000

    return read


def seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}", value) or not int(value):
        raise ValueError("it takes seconds, a whole number above 0")
    return float(value)


def position(value: str) -> Literal["latest", "trim_horizon"]:
    """``latest`` or ``trim_horizon``."""
    if value.upper() == "AT_TIMESTAMP":
        raise ValueError(
            "an instant is given by initialPositionInStreamExtended, in seconds since 1970, alone"
        )
    if value.upper() not in {"LATEST", "TRIM_HORIZON"}:
        raise ValueError("it takes LATEST or TRIM_HORIZON")
    return "latest" if value.upper() == "LATEST" else "trim_horizon"


def instant(value: str) -> datetime:
    """An aware datetime, from seconds since 1970."""
    if not re.fullmatch(r"[0-9]{1,15}", value):
        raise ValueError("it takes seconds since 1970, a whole number such as 1636609142")
    if int(value) >= _MAX_SECONDS:
        raise ValueError(
            f"it takes seconds since 1970, and this looks like milliseconds: {value[:-3]}?"
        )
    return datetime.fromtimestamp(int(value), tz=timezone.utc)


def stream_arn(value: str) -> tuple[str, str, str]:
    """The ARN, its region and its stream's name."""
    found = _STREAM_ARN.fullmatch(value)
    if not found:
        raise ValueError(
            "it takes the ARN of a stream, such as "
            "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"
        )
    return value, found["region"], found["name"]


def region(value: str) -> str:
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]+", value):
        raise ValueError("it takes an AWS region, such as eu-west-1")
    return value


def endpoint(value: str) -> str:
    if not is_url(value):
        raise ValueError("it takes a URL, such as http://127.0.0.1:4566")
    return value


def billing_mode(value: str) -> str:
    if value.upper() not in {"PAY_PER_REQUEST", "PROVISIONED"}:
        raise ValueError("it takes PAY_PER_REQUEST or PROVISIONED")
    return value.upper()


def retrieval_mode(value: str) -> str:
    if value.upper() not in {"FANOUT", "POLLING", "DEFAULT"}:
        raise ValueError("it takes FANOUT, POLLING or DEFAULT")
    return value.upper()
