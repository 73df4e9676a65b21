"""Judges where readers began and what they were given, by places in shards. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sparkinesis import ExtendedSequenceNumber
from tests.interop.judge import Record

Place: TypeAlias = ExtendedSequenceNumber


def place(pair: Iterable[Any]) -> Place:
    sequence_number, sub_sequence_number = pair
    return Place(str(sequence_number), int(sub_sequence_number))


def problems_of(lines: Iterable[Mapping[str, Any]], places: Mapping[Record, Place]) -> list[str]:
    """Return what no reader may do, one sentence each.

    ``lines``: of records, checkpoints and beginnings (``from``), each with its time ``at``.
    ``places``: where each user record was put.

    A reader that gets a shard begins at its last checkpoint, whoever wrote that, and is given
    nothing up to there. Each user record has the place at which it was put, whoever reads it.
    """
    found: list[str] = []
    checkpoints: dict[str, tuple[Place, str]] = {}
    began: dict[tuple[str, str], Place] = {}
    wrong: defaultdict[tuple[str, str], int] = defaultdict(int)
    for line in sorted(lines, key=lambda one: float(one["at"])):
        reader, shard = str(line["reader"]), str(line["shard"])
        if "from" in line:
            began[reader, shard] = at = place(line["from"])
            last, writer = checkpoints.get(shard, (None, ""))
            if last is not None and at < last:
                found.append(
                    f"{reader} began {shard} at {at}, ahead of {writer}'s checkpoint {last}"
                )
        elif "checkpoint" in line:
            made = place(line["checkpoint"]), reader
            checkpoints[shard] = max(made, checkpoints.get(shard, made))
        elif "records" in line:
            for (key, number), given in zip(line["records"], line["places"], strict=True):
                at = place(given)
                if at != places.get((key, number)):
                    wrong[reader, f"{key} {number}"] += 1
                if at <= began[reader, shard]:
                    found.append(
                        f"{reader} was given {key} {number} at {at} of {shard}, which it began at "
                        f"{began[reader, shard]}"
                    )
    found += [f"{reader} was given {record} at another place" for reader, record in wrong]
    return found
