"""The positions that options take: a word, an instant, Databricks' JSON, a map of shards. Pure.

`initial_position` is the start of a streaming query: ``latest``, ``trim_horizon``, an instant, or
the checkpoints of a KCL application.

`boundary` is the start or end of a batch read, in one of three forms: one position for all shards
(``trim_horizon``, ``latest`` or an instant); a JSON map of shard id to position, when one stream is
read; or a JSON map of stream to such a map. The last form is that of an offset
(`sparkinesis.source.offsets`), so the offset of a streaming query can be used as it is.

Both take an instant by the JSON of Databricks' Kinesis source, too: ``{"at_timestamp": "06/25/2020
10:23:45 PDT", "format": "MM/dd/yyyy HH:mm:ss ZZZ"}``. The format is Java's (DateTimeFormatter,
SimpleDateFormat). The letters that name an instant with a time zone are read; for any other format
the error says how to write the instant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from sparkinesis.errors import OptionError
from sparkinesis.source.offsets import ANY_SHARD, Offset, Positions
from sparkinesis.source.options.values import text
from sparkinesis.stream.address import TABLE_NAME, shown
from sparkinesis.stream.position import (
    FromApplication,
    InitialPosition,
    Position,
    Sentinel,
    parse_initial_position,
    parse_position,
)

_APPLICATION = re.compile(r"application:(?P<name>.*)", re.IGNORECASE)


def initial_position(name: str, value: str) -> Position:
    """Read a position as `position` does, or ``application:NAME`` of a KCL application."""
    found = _APPLICATION.fullmatch(value.strip())
    if found is None:
        return position(name, value, ", or application:NAME of a KCL application")
    if not TABLE_NAME.fullmatch(found["name"]):
        raise OptionError(
            f"The option {name} is {value!r}; after application: it takes the name of a KCL "
            "application, which is the name of its DynamoDB table: 3 to 255 letters, digits, "
            "'_', '.' and '-'."
        )
    return FromApplication(found["name"])


def position(name: str, value: str, others: str = "") -> InitialPosition:
    """Read ``latest``, ``trim_horizon`` or an instant. Raises `OptionError`.

    ``others``: the values that the option accepts besides, for the error's text.
    """
    if _has_at_timestamp(value):
        return _read_at_timestamp(name, value)
    try:
        return parse_initial_position(text(name, value), others)
    except ValueError as error:
        raise OptionError(f"The option {name} is {value!r}, {error}.") from None


Boundary: TypeAlias = Position | Positions | Offset
"""A position for all shards, for each shard of one stream, or for each shard of each stream."""


def boundary(name: str, value: str) -> Boundary:
    """Return the position or positions of the option's text. Raises `OptionError`."""
    is_map = value.lstrip().startswith("{") and not _has_at_timestamp(value)
    return _read_map(name, value) if is_map else _one(name, value)


def boundary_by_stream(name: str, found: Boundary, streams: Iterable[str]) -> Offset:
    """Return the boundary of each stream; streams missing in a map have none.

    A position for all shards becomes that of the shard `ANY_SHARD`. Raises `OptionError`.
    """
    names = tuple(streams)
    if not isinstance(found, Mapping):
        return {stream: {ANY_SHARD: found} for stream in names}
    offset: dict[str, Positions] = {}
    shards: dict[str, Position] = {}
    for key, of_key in found.items():
        if isinstance(of_key, Mapping):
            offset[key] = of_key
        else:
            shards[key] = of_key
    if shards and len(names) > 1:
        raise OptionError(
            f"The option {name} maps shards to positions, but the query reads {len(names)} "
            "streams. Name the stream of the shards, for example "
            f'{{"{names[0]}": {{"{next(iter(shards))}": "..."}}}}.'
        )
    unread = sorted(set(offset).difference(names))
    if unread:
        raise OptionError(
            f"The option {name} names stream {', '.join(map(repr, unread))}, which the query does "
            f"not read. It reads {', '.join(map(repr, names))}."
        )
    return {names[0]: shards} if shards else offset


def _one(name: str, value: str) -> Position:
    try:
        return position(name, value)
    except OptionError as error:
        raise OptionError(
            f"{error} It also takes a JSON map of shard to sequence number, such as "
            '{"shardId-000000000000": "4966..."}.'
        ) from None


def _read_map(name: str, value: str) -> Boundary:
    try:
        found = json.loads(value, object_pairs_hook=_without_repeated_keys)
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f"The option {name} starts with '{{' but is not valid JSON: {error}."
        ) from None
    nested = [isinstance(positions, dict) for positions in found.values()]
    if any(nested) and not all(nested):
        raise OptionError(
            f"The option {name} maps some keys to positions and others to maps. It takes a map of "
            "shard to position, or a map of stream to such maps, but not a mixture."
        )
    if nested and all(nested):
        return {stream: _positions(name, positions) for stream, positions in found.items()}
    return _positions(name, found)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} is repeated")
    return found


def _positions(name: str, texts: Mapping[str, Any]) -> dict[str, Position]:
    return {shard: _position(name, shard, text) for shard, text in texts.items()}


def _position(name: str, shard: str, text: Any) -> Position:
    if isinstance(text, str) and text.strip().upper() in Sentinel.__members__:
        return Sentinel[text.strip().upper()]
    try:
        found = parse_position(text)
        if isinstance(found, FromApplication):
            raise ValueError(f"{text!r} is a start for streaming queries only")
        return found
    except ValueError as error:
        hint = " Put quotes around the sequence number." if isinstance(text, int) else ""
        raise OptionError(
            f"The option {name} has a position for shard {shard[:200]} that cannot be parsed: "
            f"{error}.{hint}"
        ) from None


_KEYS = {"at_timestamp", "format"}
_INSTEAD = "Write the instant in ISO 8601 instead, without JSON: 2026-11-21T08:30:00-07:00."

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_RFC_822 = {"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}
"""Hours east of UTC of the abbreviations that RFC 822 defines; Java reads them in the same way."""
_OFFSET = re.compile(r"(?:utc|gmt)?([+-])([0-9]{1,2}):?([0-9]{2})?")

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_NUMBER = {"d": "day", "H": "hour", "h": "hour12", "m": "minute", "s": "second"}


def _has_at_timestamp(text: str) -> bool:
    """Return True if the option's text is Databricks' JSON, or is meant to be."""
    return text.lstrip().startswith("{") and '"at_timestamp"' in text


def _read_at_timestamp(name: str, value: str) -> InitialPosition:
    """Return the position of the instant in the JSON ``value``. Raises `OptionError`."""

    def refuse(why: str) -> OptionError:
        return OptionError(f"The option {name} is {shown(value)}; {why}. {_INSTEAD}")

    try:
        given: Any = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise refuse(f"this is not valid JSON: {error}") from None
    if unknown := sorted(set(given) - _KEYS):
        raise refuse(f"the JSON may have the keys at_timestamp and format, not {shown(unknown[0])}")
    if not all(isinstance(each, str) for each in given.values()):
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
