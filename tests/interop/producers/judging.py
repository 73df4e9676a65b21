"""Judges what was read of a program's records: which differ from what it was given. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkinesis.stream.shard import hash_key
from tests.interop.producers.known import Given, marks

Shards = Mapping[str, tuple[str, ...]]
"""The parents of each shard."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A user record as a door delivers it."""

    key: str | None
    hash_key: str | None
    data: bytes
    shard: str = ""
    position: tuple[int, int] = (0, 0)
    """Its sequence number, and its place within an aggregate."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many of a program's records differ from what it was given, by kind of difference."""

    read: int
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    """Delivered behind a later one of their key, in their shard or in an ancestor of it."""
    scattered: int = 0
    """Keys in shards that exist side by side."""
    relabelled: int = 0
    """With another key than the given one."""
    hash_keys: int = 0
    """With an explicit hash key; none was given one."""
    wrapped: int = 0
    """With other bytes around those that were given."""
    joined: int = 0
    """In one record with others."""

    def differences(self) -> set[str]:
        """The kinds of which there are some."""
        return {kind for kind in KINDS if getattr(self, kind)}


KINDS = tuple(name for name in Verdict.__dataclass_fields__ if name != "read")


def judge(records: Sequence[Given], seen: Iterable[Seen], shards: Shards) -> Verdict:
    """``shards``: the stream's; a parent comes before its children."""
    expected = {(one.key, one.number): one for one in records}
    found: Counter[tuple[str, int]] = Counter()
    counts: Counter[str] = Counter()
    last: defaultdict[str, dict[str, int]] = defaultdict(dict)
    places: defaultdict[str, set[str]] = defaultdict(set)
    at = {shard: number for number, shard in enumerate(shards)}
    total = 0
    for one in sorted(seen, key=lambda one: (at.get(one.shard, 0), one.position)):
        inside = list(marks(one.data))
        total += 1
        counts["joined"] += len(inside) if len(inside) > 1 else 0
        for mark in inside:
            key, number = mark
            counts["relabelled"] += one.key != key
            counts["hash_keys"] += one.hash_key is not None
            counts["wrapped"] += mark not in expected or one.data != expected[mark].data
            if not found[mark]:
                before = _before(last[key], one.shard, shards)
                counts["out_of_order"] += number < before
                last[key][one.shard] = max(number, before)
                places[key].add(one.shard)
            found[mark] += 1
    return Verdict(
        read=total,
        lost=len(expected.keys() - found.keys()),
        doubled=found.total() - len(found),
        scattered=sum(_is_scattered(each, shards) for each in places.values()),
        **counts,
    )


def _before(last: Mapping[str, int], shard: str, shards: Shards) -> int:
    """The highest number of a key in a shard and its ancestors; -1 if there is none."""
    return max((last.get(each, -1) for each in _line(shard, shards)), default=-1)


def _is_scattered(places: set[str], shards: Shards) -> bool:
    """True if one of the shards is neither an ancestor nor a descendant of another one."""
    lines = {place: set(_line(place, shards)) for place in places}
    return any(
        one not in lines[other] and other not in lines[one] for one in places for other in places
    )


def _line(shard: str, shards: Shards) -> list[str]:
    """The shard and its ancestors."""
    found = [shard]
    for each in found:
        found.extend(parent for parent in shards.get(each, ()) if parent not in found)
    return found


def unlike(doors: Mapping[str, Iterable[Seen]]) -> list[str]:
    """Say which doors did not deliver what the first one did: keys, hash keys and bytes."""
    held = {
        door: Counter((one.key, one.hash_key, one.data) for one in seen)
        for door, seen in doors.items()
    }
    first = next(iter(held))
    return [
        f"{door} has {(other - held[first]).total()} records that {first} does not have, and lacks "
        f"{(held[first] - other).total()}"
        for door, other in held.items()
        if other != held[first]
    ]


def kcl_drops(
    seen: Iterable[Seen],
    aggregates: Collection[tuple[str, int]],
    ranges: Mapping[str, tuple[int, int]],
) -> int:
    """Count the user records that a Java KCL drops: all those of an aggregate with a key elsewhere.

    aggregates: by shard and sequence number. ranges: the first and last hash key of each shard.
    """
    groups: defaultdict[tuple[str, int], list[Seen]] = defaultdict(list)
    for one in seen:
        groups[one.shard, one.position[0]].append(one)
    return sum(
        len(groups[place])
        for place in aggregates
        if any(_is_elsewhere(one, *ranges[one.shard]) for one in groups[place])
    )


def _is_elsewhere(one: Seen, first: int, last: int) -> bool:
    return not first <= hash_key(one.key or "", one.hash_key) <= last
