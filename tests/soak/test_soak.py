"""The soak's own judgement: what is lost, doubled, disordered or growing is told."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from sparkinesis.local.faults import Call
from tests.soak.accounting import (
    Fates,
    at_least_once,
    exactly_once,
    in_order,
    replays,
    resumed_behind,
    stored_of_put,
)
from tests.soak.footprint import Footprint, is_known_here, processes
from tests.soak.growth import Bounds, Sample, growth
from tests.soak.stored import Row
from tests.soak.weather import KINDS, fault_of, kind_at

ROWS: list[Row] = [("shard-0", f"{100 + n}", 0, f"key-{n % 2}", n // 2) for n in range(10)]
NUMBERS = [row[3:] for row in ROWS]
COPIES = Counter(NUMBERS)
STORED_TWICE: list[Row] = [*ROWS, ("shard-0", "999", 0, "key-0", 4)]
GROWS = """
import socket, threading
from pathlib import Path
from tests.soak.footprint import footprint_of

before = footprint_of(Path("/proc/self"))
threading.Thread(target=threading.Event().wait, daemon=True).start()
with socket.socket():
    after = footprint_of(Path("/proc/self"))
print(after.threads - before.threads, after.sockets - before.sockets, after.memory)
"""


def test_a_whole_outcome_is_found_whole() -> None:
    assert exactly_once(ROWS, reversed(ROWS)) == []
    assert exactly_once(STORED_TWICE, STORED_TWICE) == []
    assert at_least_once(COPIES, [*NUMBERS, NUMBERS[0]]) == []
    assert in_order([*NUMBERS, *NUMBERS[4:]]) == []
    assert stored_of_put(COPIES, {"key-0": 5, "key-1": 5}) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (exactly_once(ROWS, ROWS[:4] + ROWS[5:]), "1 missing, such as ('shard-0', '104'"),
        (exactly_once(ROWS, [*ROWS, ROWS[3]]), "1 duplicated"),
        (exactly_once(ROWS, STORED_TWICE), "1 never stored"),
        (at_least_once(COPIES, NUMBERS[:4] + NUMBERS[5:]), "1 missing, such as ('key-0', 2)"),
        (stored_of_put(COPIES, {"key-0": 5, "key-1": 6}), "1 put, but not stored"),
        (in_order([NUMBERS[2], NUMBERS[0], *NUMBERS]), "2 out of order"),
    ],
)
def test_a_record_that_is_not_where_it_belongs_is_told(found: list[str], told: str) -> None:
    (text,) = found
    assert text.startswith(told)


class Diary:
    """Lines as workers write them, each a second after the one before."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, worker: str, event: str, **more: Any) -> None:
        place = {"worker": worker, "shard": "shard-0", "acquisition": f"{worker}'s"}
        self.events.append({"at": len(self.events), "event": event, **place, **more})

    def records(self, worker: str, first: int, last: int) -> None:
        self.write(
            worker,
            "records",
            first=f"{100 + first}:0",
            last=f"{100 + last}:0",
            runs=f"key-0:{first}-{last}",
        )


@pytest.mark.parametrize(
    ("end", "fates", "cause"),
    [
        ("none", Fates(killed={"a"}), "its worker was killed"),
        ("lease_lost", Fates(paused={"a"}), "its worker was stopped"),
        ("lease_lost", Fates(), "its lease was lost"),
        ("lease_lost", Fates(shut_down={"a": 2.5}), "its lease was lost"),
        ("lease_lost", Fates(shut_down={"a": 1.5}), "UNEXPLAINED"),
        ("none", Fates(shut_down={"a": 1.5}), "UNEXPLAINED"),
        ("none", Fates(paused={"a"}, shut_down={"a": 9.5}), "its worker was stopped"),
        ("let go", Fates(), "UNEXPLAINED"),
    ],
)
def test_what_is_processed_again_is_explained_by_who_had_processed_it(
    end: str, fates: Fates, cause: str
) -> None:
    diary = Diary()
    diary.write("a", "initialize", checkpoint="TRIM_HORIZON")
    diary.records("a", 0, 9)
    if end != "none":
        diary.write("a", end)
    if end == "let go":
        diary.write("a", "lease_lost")  # follows, and excuses nothing
    diary.write("b", "initialize", checkpoint="104:0")
    diary.records("b", 5, 14)
    found = replays(diary.events, fates)
    assert found.causes == {cause: 5}
    assert len(found.unexplained) == (cause == "UNEXPLAINED")


def test_what_was_stored_twice_is_no_replay() -> None:
    diary = Diary()
    diary.write("a", "initialize", checkpoint="TRIM_HORIZON")
    diary.records("a", 0, 9)
    diary.write("a", "let go")
    diary.write("b", "initialize", checkpoint="109:0")
    diary.write("b", "records", first="110:0", last="119:0", runs="key-0:0-9")
    assert replays(diary.events, Fates()).causes == {}


def test_a_shard_that_begins_before_its_checkpoint_is_told() -> None:
    diary = Diary()
    diary.write("a", "initialize", checkpoint="TRIM_HORIZON")
    diary.write("a", "checkpoint", checkpoint="104:2")
    diary.write("b", "initialize", checkpoint="104:2")
    assert resumed_behind(diary.events) == []
    diary.write("c", "initialize", checkpoint="104:1")
    assert resumed_behind(diary.events) == ["shard-0: c began at 104:1, not 104:2"]


def series(memory: list[float], threads: int = 5, more_threads: int = 0) -> list[Sample]:
    """A look each minute; the first and the last two are in calm stretches."""
    last = len(memory) - 1
    return [
        Sample(
            60.0 * n,
            Footprint(each, threads + (more_threads if n >= last - 1 else 0), 3, 9),
            calm=n < 2 or n >= last - 1,
        )
        for n, each in enumerate(memory)
    ]


def test_memory_that_grows_is_told_and_memory_that_has_grown_is_not() -> None:
    bounds = Bounds(memory=50, slope=2)
    rng = random.Random(2)
    leak = [100 + 6 * n + rng.uniform(-4, 4) for n in range(20)]
    (told,) = growth(series(leak), bounds)
    assert "MiB have become" in told
    kept = [Sample(s.seconds, s.footprint, s.calm, s.seconds / 10) for s in series(leak)]
    assert growth(kept, bounds) == [], "it was given to be kept"
    warm = [100 + 80 * (1 - 0.6**n) + rng.uniform(-4, 4) for n in range(20)]
    assert growth(series(warm), bounds) == []
    peak = [100.0] * 19 + [180.0]
    assert growth(series(peak), bounds) == []


def test_threads_that_are_left_are_told() -> None:
    flat = [100.0] * 20
    assert growth(series(flat, more_threads=3), Bounds(threads=3)) == []
    (told,) = growth(series(flat, more_threads=4), Bounds(threads=3))
    assert told.startswith("5 threads have become 9")


def test_a_process_that_was_not_there_at_the_end_is_told() -> None:
    (told,) = growth([Sample(n, Footprint(1, 1, 1, 1), calm=n < 5) for n in range(20)], Bounds())
    assert "not there" in told


@pytest.mark.skipif(not is_known_here(), reason="it is read from /proc")
def test_the_footprint_of_a_process_is_seen() -> None:
    """Of one of its own: here, threads of other tests end at any time."""
    ran = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True, check=True)
    threads, sockets, memory = (float(word) for word in ran.stdout.split())
    assert (threads, sockets) == (1, 1)
    assert 10 < memory < 4_000
    assert os.getpid() in {found.pid for found in processes({os.getsid(0)})}


def test_weather_is_bad_for_a_share_of_the_time_and_calls() -> None:
    kinds = {moment: kind_at(moment, 5) for moment in range(60 * 60)}
    bad = [moment for moment, kind in kinds.items() if kind is not None]
    assert {kinds[moment] for moment in bad} == {*KINDS}
    assert 0.15 < len(bad) / len(kinds) < 0.35
    calls = [Call("GetRecords", "r", "s", "shard-0", n, 0) for n in range(1_000)]
    assert 150 < sum(fault_of(call, bad[0], 5) is not None for call in calls) < 350
