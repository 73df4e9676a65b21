"""Short names of shards and owners. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from sparkinesis.errors import printable

_SHARD = re.compile(r"shardId-0*(\d+)")
_SEPARATORS = ":/._- "
_LONGEST = 6
"""The most characters of a shortened owner."""


def short_shard(name: str) -> str:
    """Return the number of a shard without the zeros before it; other names stay as they are."""
    return _SHARD.sub(r"\1", printable(name))


def short_shards(names: Collection[str]) -> Mapping[str, str]:
    """Return short names of shard ids or lease keys: ``shardId-000000000012`` becomes 12."""
    numbers = {name: short_shard(name) for name in names}
    start = _common(list(numbers.values()))
    return {name: number[len(start) :] for name, number in numbers.items()}


def short_owners(names: Collection[str]) -> Mapping[str, str]:
    """Return a name of at most six characters for each owner.

    Uses the names as they are, or without their common start and end. If these are too long or not
    unique, the owners are named w1, w2, ... in their order.
    """
    ordered = sorted(names)
    plain = [printable(name) for name in ordered]
    start = _common(plain)
    end = _common([name[len(start) :][::-1] for name in plain])
    parts = [name[len(start) : len(name) - len(end)] for name in plain]
    for short in (plain, [f"w{part}" if part.isdecimal() else part for part in parts]):
        if len(set(short)) == len(short) and all(0 < len(one) <= _LONGEST for one in short):
            return dict(zip(ordered, short, strict=True))
    return {name: f"w{number}" for number, name in enumerate(ordered, 1)}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'s' * (number != 1)}"


def _common(names: list[str]) -> str:
    """Return the common start of two or more names, up to a separator."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    length = 0
    for at, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            break
        if one in _SEPARATORS:
            length = at + 1
    return first[:length]
