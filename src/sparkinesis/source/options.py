"""The options of ``format("kinesis")``: read and checked before anything is called.

Names are those of Databricks' Kinesis source where it has one; like all Spark options they are not
case-sensitive.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar
from urllib.parse import urlsplit

from sparkinesis.errors import OptionError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.budget import MAX_RECORDS_PER_CALL, Pace
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, Position

_T = TypeVar("_T")

OPTIONS = (
    "streamName",
    "streamARN",
    "region",
    "endpoint",
    "initialPosition",
    "deaggregate",
    "failOnDataLoss",
    "maxRecordsPerFetch",
    "minFetchPeriod",
    "shardCallsPerSecond",
    "shardBytesPerSecond",
)

_STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_STREAM_ARN = re.compile(
    r"arn:aws[^:]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:stream/(?P<name>[a-zA-Z0-9_.-]{1,128})"
)
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[a-z]*)")
_UNITS = {
    **dict.fromkeys(("ms", "millis", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
}
_CREDENTIALS = {"awsaccesskey", "awssecretkey", "awssessiontoken", "accesskey", "secretkey"}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query asked for, checked. Pickled to executors: never any credentials."""

    address: StreamAddress
    initial_position: Position
    """Where a query without a checkpoint begins: LATEST, TRIM_HORIZON or an instant."""
    deaggregate: bool
    """Unpack KPL aggregates into user records (default) or hand on the records as stored."""
    fail_on_data_loss: bool
    max_records_per_fetch: int
    """``Limit`` of the readers' GetRecords calls, 1 to 10,000."""
    min_fetch_period: float
    """Seconds at least between two looks of the planner for new records."""
    pace: Pace


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check all options. Raises `OptionError`, which names the option and what it takes."""
    given = {name.lower(): (name, value) for name, value in options.items()}
    known = {name.lower(): name for name in OPTIONS}
    for lower, (name, _) in given.items():
        if lower in _CREDENTIALS:
            raise OptionError(
                f"The option {name} is not taken: credentials in options end up in query plans and "
                "logs. Give the driver and the executors a role, a profile, or the environment "
                "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        if lower not in known:
            raise OptionError(_unknown(name))

    def take(name: str, read: Callable[[str, str | None], _T]) -> _T:
        return read(name, given.get(name.lower(), (name, None))[1])

    calls = take("shardCallsPerSecond", _rate(5))
    return SourceOptions(
        address=_address(
            take("streamName", _text),
            take("streamARN", _text),
            take("region", _region),
            take("endpoint", _endpoint),
        ),
        initial_position=take("initialPosition", _position),
        deaggregate=take("deaggregate", _boolean(True)),
        fail_on_data_loss=take("failOnDataLoss", _boolean(True)),
        max_records_per_fetch=take(
            "maxRecordsPerFetch", _integer(MAX_RECORDS_PER_CALL, 1, MAX_RECORDS_PER_CALL)
        ),
        min_fetch_period=take("minFetchPeriod", _duration(1.0)),
        # Planner and readers take turns on a shard: two fifths for each, and one for a task whose
        # predecessor on the shard ran in another process and cannot be counted.
        pace=Pace(calls * 0.4, take("shardBytesPerSecond", _rate(2_000_000))),
    )


def _unknown(name: str) -> str:
    names = {known.lower(): known for known in OPTIONS}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"Did you mean {names[near[0]]}? " if near else ""
    return f"The kinesis source has no option {name!r}. {hint}It takes: {', '.join(OPTIONS)}."


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise OptionError(f"The option {name} is empty. Leave it out or give it a value.")
    return value.strip() if value is not None else None


def _region(name: str, value: str | None) -> str | None:
    region = _text(name, value)
    if region is not None and not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]+", region):
        raise OptionError(
            f"The option {name} is {value!r}, which is not an AWS region. {_nearest_region(region)}"
        )
    return region


def _nearest_region(region: str) -> str:
    known = _known_regions()
    near = difflib.get_close_matches(region.lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else "It looks like eu-west-1."


def _known_regions() -> list[str]:
    import botocore.session  # noqa: PLC0415 - slow, and most queries never come here

    session = botocore.session.Session()
    return [
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("kinesis", partition_name=partition)
    ]


def _endpoint(name: str, value: str | None) -> str | None:
    endpoint = _text(name, value)
    if endpoint is None:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise OptionError(
            f"The option {name} is {value!r}; it takes a URL, such as http://127.0.0.1:4566."
        )
    if parts.username or parts.password:
        raise OptionError(f"The option {name} may not hold credentials: they would be logged.")
    return endpoint


def _position(name: str, value: str | None) -> Position:
    text = (_text(name, value) or "latest").strip()
    named = {"latest": LATEST, "trim_horizon": TRIM_HORIZON, "earliest": TRIM_HORIZON}
    if text.lower() in named:
        return named[text.lower()]
    try:
        # Python 3.10 reads neither a trailing Z nor fewer than three decimals.
        instant = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise OptionError(
            f"The option {name} is {value!r}, which cannot be read. It takes latest, trim_horizon "
            "or an instant with its time zone in ISO 8601, such as 2026-11-21T08:30:00Z."
        ) from None
    if instant.tzinfo is None:
        raise OptionError(
            f"The option {name} is {value!r}, an instant without a time zone. Say which is meant, "
            f"for instance {text}Z or {text}+01:00."
        )
    since_epoch = instant - datetime(1970, 1, 1, tzinfo=timezone.utc)
    ms = (since_epoch.days * 86_400 + since_epoch.seconds) * 1000 + since_epoch.microseconds // 1000
    if ms < 0:
        raise OptionError(f"The option {name} is {value!r}, an instant before 1970.")
    return AtTimestamp(ms)


def _boolean(default: bool) -> Callable[[str, str | None], bool]:
    def read(name: str, value: str | None) -> bool:
        text = "" if value is None else value.strip().lower()
        if value is None:
            return default
        if text not in {"true", "false"}:
            raise OptionError(f"The option {name} is {value!r}; it takes true or false.")
        return text == "true"

    return read


def _integer(default: int, low: int, high: int) -> Callable[[str, str | None], int]:
    def read(name: str, value: str | None) -> int:
        text = str(default) if value is None else value.strip()
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise OptionError(
                f"The option {name} is {value!r}; it takes a whole number from {low} to {high}."
            )
        return int(text)

    return read


def _rate(default: float) -> Callable[[str, str | None], float]:
    def read(name: str, value: str | None) -> float:
        text = str(default) if value is None else value.strip().lower()
        if text == "unlimited":
            return 0.0
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or float(text) <= 0:
            raise OptionError(
                f"The option {name} is {value!r}; it takes a number above 0, or unlimited for a "
                "local Kinesis without limits."
            )
        return float(text)

    return read


def _duration(default: float) -> Callable[[str, str | None], float]:
    def read(name: str, value: str | None) -> float:
        if value is None:
            return default
        found = _DURATION.fullmatch(value.strip().lower())
        if not found or found["unit"] not in _UNITS:
            raise OptionError(
                f"The option {name} is {value!r}; it takes a number and a unit, such as 400ms, 1s "
                "or 2 minutes."
            )
        return float(found["number"]) * _UNITS[found["unit"]]

    return read


def _address(
    name: str | None, arn: str | None, region: str | None, endpoint: str | None
) -> StreamAddress:
    if (name is None) == (arn is None):
        raise OptionError(
            "Say which stream to read: give either the option streamName or the option streamARN"
            + (", not both." if name is not None else ".")
        )
    if arn is not None:
        found = _STREAM_ARN.fullmatch(arn)
        if not found:
            raise OptionError(
                f"The option streamARN is {arn!r}; it takes the ARN of a stream, such as "
                "arn:aws:kinesis:eu-west-1:123456789012:stream/flights."
            )
        if region is not None and region != found["region"]:
            raise OptionError(
                f"The option streamARN names a stream in {found['region']}, but the option region "
                f"is {region}. Leave out region: the ARN says it."
            )
        return StreamAddress(found["name"], arn, found["region"], endpoint)
    assert name is not None
    if not _STREAM_NAME.fullmatch(name):
        raise OptionError(
            f"The option streamName is {name!r}; it takes the name of one stream: 1 to 128 "
            "letters, digits, '_', '.' and '-'."
        )
    if region is not None and endpoint is None and region not in _known_regions():
        raise OptionError(
            f"The option region is {region!r}, in which Kinesis is not known to exist. "
            f"{_nearest_region(region)} If it is a new region, update boto3."
        )
    return StreamAddress(name, None, region, endpoint)
