"""The verdict of a soak: figures, and findings by the name of the check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.worker.fleet import rival_checkpoints
from tests.soak.accounting import (
    Fates,
    at_least_once,
    exactly_once,
    in_order,
    processed_numbers,
    replays,
    resumed_behind,
    stored_of_put,
)
from tests.soak.growth import Bounds, Sample, growth, memory_slope
from tests.soak.outcome import Output, rows_of
from tests.soak.processor import KeyedNumber
from tests.soak.stored import Stored
from tests.soak.watch import Process, Watch

_JVM = Bounds(memory=64, slope=3, threads=12, sockets=12)
"""A JVM compiles and pools threads for a long time."""
_SERVER = Bounds(sockets=24)
"""The server has the other ends of all pools: each of two queries' planners may need six
connections more, one for each new shard, and so may the workers together."""


def bounds_of(process: Process) -> Bounds:
    """Returns the bounds of a process's growth."""
    if process.child == "server":
        return _SERVER
    return _JVM if process.role == "JVM" else Bounds()


@dataclass
class Verdict:
    figures: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """The findings: ``name of the check: explanation``."""

    def check(self, name: str, found: list[str]) -> None:
        self.wrong += [f"{name}: {words}" for words in found]


def judge_queries(verdict: Verdict, watch: Watch, stored: Stored) -> None:
    """Each row once, keys in order."""
    doors: list[tuple[str, Output]] = [
        ("the killed query", watch.killed_query),
        ("the steady query", watch.steady_query),
    ]
    for name, output in doors:
        rows = list(rows_of(output.tables()))
        verdict.figures[f"out of {name}"] = len(rows)
        verdict.check(f"{name} gives each record exactly once", exactly_once(stored.rows, rows))
        verdict.check(f"{name} keeps each key's order", in_order(row[3:] for row in rows))


def judge_processors(
    verdict: Verdict, watch: Watch, fates: Fates, copies: Counter[KeyedNumber]
) -> None:
    """Nothing lost, keys in order, and what came again is explained."""
    events = watch.processed.events
    numbers = list(processed_numbers(events))
    again = replays(events, fates)
    verdict.figures["processed by record processors"] = len(numbers)
    verdict.figures["processed again"] = dict(again.causes)
    verdict.figures["acquisitions"] = sum(event["event"] == "initialize" for event in events)
    verdict.check("record processors lose nothing", at_least_once(copies, numbers))
    verdict.check("record processors keep each key's order", in_order(numbers))
    verdict.check("a shard that was let go is not processed again", again.unexplained)
    verdict.check("a shard resumes at its last checkpoint", resumed_behind(events))
    verdict.check("one owner at a time checkpoints", rival_checkpoints(events))


def judge_growth(verdict: Verdict, watch: Watch) -> None:
    """Judges the processes that lived from the start to the end."""
    slopes = {}
    for process, samples in long_lived(watch).items():
        verdict.check(f"{process} does not grow", growth(samples, bounds_of(process)))
        half = [s for s in samples if s.seconds >= (samples[0].seconds + samples[-1].seconds) / 2]
        slopes[str(process)] = round(memory_slope(half), 2)
    verdict.figures["MiB a minute in the last half"] = slopes


def long_lived(watch: Watch) -> dict[Process, list[Sample]]:
    """The processes that lived in both calm stretches, with their samples."""
    calm = [s.seconds for samples in watch.samples.values() for s in samples if s.calm]
    middle = (min(calm) + max(calm)) / 2
    found = {}
    for process, samples in watch.samples.items():
        early = [sample.seconds < middle for sample in samples if sample.calm]
        if any(early) and not all(early):
            found[process] = samples
    return found


def judge_stream(verdict: Verdict, stored: Stored, put: Mapping[str, int]) -> None:
    copies = stored.copies
    verdict.figures["user records put"] = sum(put.values())
    verdict.figures["user records stored"] = len(stored.rows)
    verdict.figures["stored twice"] = len(stored.rows) - len(copies)
    verdict.figures["records stored"] = stored.records
    verdict.check("the producer's records are in the stream", stored_of_put(copies, put))
