"""Compares the rows of two lease tables for the same state of the same streams. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Mapping[str, Any]]
"""A row as DynamoDB's API returns it."""

_SHOWN = 26
"""Characters of a value in the table."""

_VALUE, _OURS, _JAVA = "value", "only ours", "only Java"

EXPLAINED: Mapping[str, tuple[set[str], str]] = {
    "leaseOwner": ({_VALUE, _JAVA}, "the worker's id; ours gives up a shard that it has finished"),
    "leaseCounter": ({_VALUE}, "the number of writes: renewals and checkpoints"),
    "throughputKBps": (
        {_VALUE, _OURS, _JAVA},
        "measured; written by renewals, of shards that had records",
    ),
    "entityType": ({_JAVA}, "KCL 3.5 writes LEASE, and reads a row without it as a lease"),
    "leaseTimestamp": ({_OURS}, "when the row was made; a Java KCL keeps and ignores it"),
    "checkpointPosition": ({_OURS}, "arrival times known at the checkpoint; likewise"),
    "fencingToken": ({_OURS}, "the token of the last acquisition; likewise"),
}
"""The differences that may be: of which kinds, and why.

The kinds are: both have the attribute, of one type, with other values; or only one has it.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One attribute, over all rows that either table has."""

    attribute: str
    same: int
    """Rows in which both have it with the same value."""
    other_value: int
    other_type: int
    only_ours: int
    only_java: int
    example: tuple[str, str]
    """Ours and Java's, from a row in which they differ, or else from any."""

    @property
    def why(self) -> str | None:
        """The reason for the differences; "" without one, None if they are not explained."""
        kinds = {
            _VALUE: self.other_value,
            "type": self.other_type,
            _OURS: self.only_ours,
            _JAVA: self.only_java,
        }
        found = {kind for kind, count in kinds.items() if count}
        if not found:
            return ""
        allowed, why = EXPLAINED.get(self.attribute, (set(), ""))
        return why if found <= allowed else None


def compare(ours: Mapping[str, Row], java: Mapping[str, Row]) -> list[Comparison]:
    """Compare the rows of the lease keys that both tables have, attribute by attribute."""
    keys = sorted(ours.keys() & java.keys())
    names = sorted({name for key in keys for row in (ours[key], java[key]) for name in row})
    return [_compare(name, [(ours[key], java[key]) for key in keys]) for name in names]


def _compare(name: str, pairs: list[tuple[Row, Row]]) -> Comparison:
    counts = dict.fromkeys(("same", "other_value", "other_type", "only_ours", "only_java"), 0)
    examples: dict[str, tuple[str, str]] = {}
    for ours, java in pairs:
        one, other = ours.get(name), java.get(name)
        if one is None and other is None:
            continue
        if one is None or other is None:
            kind = "only_java" if one is None else "only_ours"
        elif one.keys() != other.keys():
            kind = "other_type"
        else:
            kind = "same" if _plain(one) == _plain(other) else "other_value"
        counts[kind] += 1
        examples.setdefault(kind, (_shown(one), _shown(other)))
    example = next(examples[kind] for kind in reversed(counts) if kind in examples)
    return Comparison(name, **counts, example=example)


def _plain(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    return sorted(content) if kind in {"SS", "NS", "BS"} else content


def _shown(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "-"
    ((kind, _),) = value.items()
    content = _plain(value)
    text = f"{kind} {', '.join(content) if kind == 'SS' else content}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def leases_of(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows that are leases."""
    return {
        key: row
        for key, row in rows.items()
        if row.get("entityType", {"S": "LEASE"}) == {"S": "LEASE"}
    }


def state_of(row: Row) -> tuple[Any, ...]:
    """Return what must be equal before two rows can be compared: where the shard is."""
    names = ("checkpoint", "checkpointSubSequenceNumber", "pendingCheckpoint", "childShardIds")
    return tuple(_plain(row[name]) if name in row else None for name in names)


def row_problems(ours: Mapping[str, Row], java: Mapping[str, Row]) -> list[str]:
    """Return the differences that are not explained, one sentence each."""
    found = [f"only our table has the lease {key}" for key in sorted(ours.keys() - java.keys())]
    found += [f"only Java's table has the lease {key}" for key in sorted(java.keys() - ours.keys())]
    for one in compare(ours, java):
        if one.why is None:
            mine, other = one.example
            found.append(f"{one.attribute} is {mine} in our rows and {other} in Java's")
    return found
