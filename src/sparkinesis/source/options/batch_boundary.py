"""The start and end of a batch read: the options ``startingPosition`` and ``endingPosition``.

An option's text has one of three forms: one position for all shards (``trim_horizon``, ``latest``
or an instant); a JSON map of shard id to position, when one stream is read; or a JSON map of stream
to such a map. The last form is that of an offset (`sparkinesis.source.offsets`), so the offset of a
streaming query can be used as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sparkinesis.errors import OptionError
from sparkinesis.source.offsets import ANY_SHARD, Offset, Positions
from sparkinesis.source.options.at_timestamp import has_at_timestamp
from sparkinesis.source.options.values import position
from sparkinesis.stream.address import shown
from sparkinesis.stream.position import FromApplication, Position, Sentinel, parse_position

Boundary: TypeAlias = Position | Positions | Offset
"""A position for all shards, for each shard of one stream, or for each shard of each stream."""


def boundary(name: str, value: str) -> Boundary:
    """Return the position or positions of the option's text. Raises `OptionError`."""
    is_map = value.lstrip().startswith("{") and not has_at_timestamp(value)
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
