"""Why records came twice: which move of a lease it was, and by whom. Pure functions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tests.interop.judge import Record

_KINDS = {"w": "ours", "j": "Java", "o": "the older revision", "n": "this revision"}
"""By the first letter of a reader's name."""


def repeats(lines: Iterable[Mapping[str, Any]], killed: Collection[str]) -> Counter[str]:
    """Return the number of records that came again, by the cause.

    ``lines``: of records, checkpoints and beginnings (``from``), each with its time ``at``. A
    reader's kind is the first letter of its name.

    A record comes again if its shard gets another reader before the first one has checkpointed: the
    first was killed, or has lost the lease without a request; or it was requested, and has not
    checkpointed all. A reader that is given records after another one has begun has not yet noticed
    that its lease is lost.
    """
    found: Counter[str] = Counter()
    given: dict[Record, tuple[str, float]] = {}
    begun: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    asked: dict[tuple[str, str], float] = {}
    for line in sorted(lines, key=lambda one: float(one["at"])):
        reader, shard, at = str(line["reader"]), str(line["shard"]), float(line["at"])
        if "from" in line:
            begun[shard].append((at, reader))
        elif "asked" in line:
            asked[reader, shard] = at
        elif "records" in line:
            for key, number in line["records"]:
                record = (str(key), int(number))
                if (before := given.get(record)) is not None:
                    since = next(
                        (when for when, who in reversed(begun[shard]) if who == reader), at
                    )
                    found[_cause(before, reader, since, (before[0], shard) in asked, killed)] += 1
                given[record] = (reader, at)
    return found


def _cause(
    before: tuple[str, float], reader: str, since: float, was_asked: bool, killed: Collection[str]
) -> str:
    """Return the cause of one repeat.

    ``before``: the reader that was given the record first, and when; ``since``: the time at which
    ``reader`` began with the shard.
    """
    first, at = before
    one, other = _KINDS[first[0]], _KINDS[reader[0]]
    if first == reader:
        return f"{one} lost the lease and got it again"
    if at > since:
        return f"{one} was given it when {other} had begun: it had not noticed its loss"
    if first in killed:
        return f"{one} was killed before its checkpoint; {other} went on"
    if was_asked:
        return f"{one} handed over to {other}, and had not checkpointed all"
    return f"{other} took the lease from {one} without a request"
