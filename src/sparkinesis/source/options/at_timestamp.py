"""The JSON by which Databricks' Kinesis source takes an instant as ``initialPosition``. Pure.

``{"at_timestamp": "06/25/2020 10:23:45 PDT", "format": "MM/dd/yyyy HH:mm:ss ZZZ"}``: the format is
Java's (DateTimeFormatter, SimpleDateFormat). The letters that name an instant with a time zone are
read; for any other format the error says how to write the instant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from sparkinesis.errors import OptionError
from sparkinesis.stream.address import shown
from sparkinesis.stream.position import InitialPosition, parse_initial_position

_KEYS = {"at_timestamp", "format"}
_INSTEAD = "Write the instant in ISO 8601 instead, without JSON: 2026-11-21T08:30:00-07:00."

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_RFC_822 = {"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}
"""Hours east of UTC of the abbreviations that RFC 822 defines; Java reads them in the same way."""
_OFFSET = re.compile(r"(?:utc|gmt)?([+-])([0-9]{1,2}):?([0-9]{2})?")

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_NUMBER = {"d": "day", "H": "hour", "h": "hour12", "m": "minute", "s": "second"}


def has_at_timestamp(text: str) -> bool:
    """Return True if the option's text is such JSON, or is meant to be."""
    return text.lstrip().startswith("{") and '"at_timestamp"' in text


def read_at_timestamp(name: str, text: str) -> InitialPosition:
    """Return the position of the instant in the JSON ``text``. Raises `OptionError`."""

    def refuse(why: str) -> OptionError:
        return OptionError(f"The option {name} is {shown(text)}; {why}. {_INSTEAD}")

    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse(f"this is not valid JSON: {error}") from None
    if unknown := sorted(set(given) - _KEYS):
        raise refuse(f"the JSON may have the keys at_timestamp and format, not {shown(unknown[0])}")
    if not all(isinstance(value, str) for value in given.values()):
        raise refuse("the values of at_timestamp and format must be strings")
    written = given["at_timestamp"].strip()
    try:
        instant = _parse(written, given["format"]) if "format" in given else written
        return parse_initial_position(instant)
    except ValueError as error:
        raise refuse(f"at_timestamp is {shown(written)}, {error}") from None


def _parse(written: str, pattern: str) -> datetime:
    """Return the instant; without a time zone if there is none. Raises ValueError."""
    found = _expression(pattern).fullmatch(written)
    if found is None:
        raise ValueError(f"which does not have the format {shown(pattern)}")
    field = found.groupdict()
    month = field["month"].lower()[:3]
    hour = int(field.get("hour") or 0)
    if "hour12" in field:
        hour = int(field["hour12"]) % 12 + 12 * (field.get("half", "am").lower() == "pm")
    return datetime(
        int(field["year"]),
        _MONTHS.index(month) + 1 if month in _MONTHS else int(month),
        int(field["day"]),
        hour,
        int(field.get("minute") or 0),
        int(field.get("second") or 0),
        int(field.get("fraction", "0").ljust(6, "0")[:6]),
        _zone(field["zone"]) if "zone" in field else None,
    )


def _expression(pattern: str) -> re.Pattern[str]:
    """Return a regular expression with a group for each field of Java's format."""
    parts, at = [], 0
    groups: set[str] = set()
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"and the format {shown(pattern)} has an open quote")
        at = token.end()
        group, expression = _field(token)
        if group in groups:
            raise ValueError(f"and the format {shown(pattern)} names the {group} twice")
        groups.update({group} - {""})
        parts.append(f"(?P<{group}>{expression})" if group else expression)
    if missing := {"year", "month", "day"} - groups:
        raise ValueError(f"and the format {shown(pattern)} has no {min(missing)}")
    return re.compile("".join(parts), re.IGNORECASE)


def _field(token: re.Match[str]) -> tuple[str, str]:
    """Return the group's name of a token ("" for text that is no field), and its expression."""
    letter, length = token[2], len(token[0])
    if letter is None:
        quoted = token[1]
        if quoted == "Z":  # meant as UTC, though Java takes the machine's time zone
            return "zone", "Z"
        text = token[0] if quoted is None else quoted.replace("''", "'") or "'"
        return "", r"\s+" if text.isspace() else re.escape(text)
    if letter in "yu" and length != 2:
        return "year", "[0-9]{4}"
    if letter in "ML":
        return "month", "[0-9]{1,2}" if length < 3 else "[a-z]{3,9}"
    if letter in _NUMBER:
        return _NUMBER[letter], "[0-9]{1,2}"
    if letter in "Sn":
        return "fraction", "[0-9]{1,9}"
    if letter == "a":
        return "half", "[ap]m"
    if letter in "zZXxVO":
        return "zone", "[a-z0-9_/+:-]{1,40}"
    raise ValueError(f"and {token[0]!r} in its format is not supported here")


def _zone(text: str) -> tzinfo:
    lower = text.lower()
    if lower in {"z", "utc", "gmt", "ut"}:
        return timezone.utc
    if lower in _RFC_822:
        return timezone(timedelta(hours=_RFC_822[lower]))
    if found := _OFFSET.fullmatch(lower):
        east = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(east if found[1] == "+" else -east)
    make: Callable[[str], tzinfo] = ZoneInfo
    try:
        return make(text)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"whose time zone {shown(text)} is not known") from None
