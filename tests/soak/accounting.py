"""Compares the output with the input. Pure functions: each check returns its findings as text."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from tests.soak.processor import KeyedNumber, numbers_of
from tests.soak.stored import Row

_SHOWN = 3

Event = dict[str, Any]
"""A line of `tests.soak.processor`."""


def stored_of_put(copies: Mapping[KeyedNumber, int], put: Mapping[str, int]) -> list[str]:
    """Every number of each key is in the stream, and nothing else is."""
    expected = {(key, number) for key, count in put.items() for number in range(count)}
    found = []
    if missing := expected - copies.keys():
        found.append(_some("put, but not stored", missing))
    if unknown := copies.keys() - expected:
        found.append(_some("stored, but never put", unknown))
    return found


def exactly_once(stored: Iterable[Row], out: Iterable[Row]) -> list[str]:
    """Every user record that is stored came out once, and nothing else did."""
    counted = Counter(out)
    rows = set(stored)
    found = []
    if missing := rows - counted.keys():
        found.append(_some("missing", missing))
    if unknown := counted.keys() - rows:
        found.append(_some("never stored", unknown))
    if doubled := [row for row, times in counted.items() if times > 1]:
        found.append(_some("duplicated", doubled))
    return found


def at_least_once(copies: Mapping[KeyedNumber, int], out: Iterable[KeyedNumber]) -> list[str]:
    """Every number of each key came out."""
    missing = copies.keys() - set(out)
    return [_some("missing", missing)] if missing else []


def in_order(out: Iterable[KeyedNumber]) -> list[str]:
    """The numbers of each key, as each is seen for the first time, go up one by one."""
    seen: dict[str, set[int]] = defaultdict(set)
    astray = []
    for key, number in out:
        if number in seen[key]:
            continue
        if number != len(seen[key]):
            astray.append((key, number))
        seen[key].add(number)
    return [_some("out of order", astray)] if astray else []


def processed_numbers(events: Sequence[Event]) -> Iterable[KeyedNumber]:
    for event in events:
        if event["event"] == "records":
            yield from numbers_of(event["runs"])


@dataclass
class Replays:
    """Why user records were processed more than once.

    causes: how many, by what befell the one who had processed them before. unexplained: those of
    shards that were let go gracefully, or should have been.
    """

    causes: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


@dataclass
class _Acquisition:
    worker: str
    began: float
    last: ExtendedSequenceNumber | None = None
    ended: str = ""
    """The first of what was told of its end, and when."""
    ended_at: float = math.inf


@dataclass(frozen=True)
class Fates:
    """The disruptions of workers, by worker id. shut_down: time of the SIGTERM (monotonic)."""

    killed: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    shut_down: dict[str, float] = field(default_factory=dict)


def replays(events: Sequence[Event], fates: Fates) -> Replays:
    """Explain what was processed again. Events in order of time.

    A batch is a replay as far as its positions do not lie behind all that were processed on the
    shard. Whoever had processed them did not checkpoint them: because it was killed or stopped, or
    lost its lease. One that let go of its shard, or was asked to, has no such excuse.
    """
    found = Replays()
    acquisitions: dict[str, _Acquisition] = {}
    latest: dict[str, str] = {}
    """The acquisition that got furthest, by shard."""
    seen: dict[str, set[KeyedNumber]] = defaultdict(set)
    for event in events:
        mine = event["acquisition"]
        shard = event["shard"]
        if event["event"] == "initialize":
            acquisitions[mine] = _Acquisition(event["worker"], event["at"])
        elif event["event"] == "records":
            numbers = list(numbers_of(event["runs"]))
            furthest = acquisitions[latest[shard]] if shard in latest else None
            if furthest is not None and furthest.last is not None:
                again = seen[shard].intersection(numbers)
                if _place(event["first"]) <= furthest.last and again:
                    cause = _cause(furthest, latest[shard] == mine, event["at"], fates)
                    found.causes[cause] += len(again)
                    if cause == "UNEXPLAINED":
                        found.unexplained.append(
                            f"{shard}: {len(again)} user records from {event['first']} by "
                            f"{event['worker']}, after {furthest.worker} had let go, or should have"
                        )
            seen[shard].update(numbers)
            last = _place(event["last"])
            acquisitions[mine].last = last
            if furthest is None or furthest.last is None or last > furthest.last:
                latest[shard] = mine
        elif event["event"] in {"let go", "lease_lost"} and not acquisitions[mine].ended:
            acquisitions[mine].ended = event["event"]
            acquisitions[mine].ended_at = event["at"]
    return found


def _cause(before: _Acquisition, same: bool, at: float, fates: Fates) -> str:
    if same:
        return "a checkpoint failed"
    # What it had lost before it was asked, it could not let go of: it may not have known of that.
    had_until = min(before.ended_at, at)
    if before.ended == "let go" or had_until > fates.shut_down.get(before.worker, math.inf):
        return "UNEXPLAINED"
    if before.worker in fates.killed:
        return "its worker was killed"
    if before.worker in fates.paused:
        return "its worker was stopped"
    # It may not have noticed yet.
    return "its lease was lost"


def resumed_behind(events: Sequence[Event]) -> list[str]:
    """Acquisitions that began before a checkpoint that had been made by then."""
    made: dict[str, ExtendedSequenceNumber] = {}
    found = []
    for event in events:
        shard = event["shard"]
        if event["event"] == "checkpoint" and event["checkpoint"] != "SHARD_END":
            made[shard] = max(_place(event["checkpoint"]), made.get(shard, _place("TRIM_HORIZON")))
        elif event["event"] == "initialize" and shard in made:
            begins = _place(event["checkpoint"])
            if begins < made[shard]:
                found.append(f"{shard}: {event['worker']} began at {begins}, not {made[shard]}")
    return found


def _place(text: str) -> ExtendedSequenceNumber:
    sequence, _, sub = text.partition(":")
    return ExtendedSequenceNumber(sequence, int(sub or 0))


def _some(what: str, which: Iterable[object]) -> str:
    listed = sorted(which)  # type: ignore[type-var]
    shown = ", ".join(map(str, listed[:_SHOWN]))
    return f"{len(listed)} {what}, such as {shown}"
