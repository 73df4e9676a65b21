"""A rolling upgrade: workers of an older revision of this library are replaced, one by one."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.competitors import before
from benchmarks.peers.environments import installed
from tests.interop.kcl.outcome import Outcome
from tests.interop.kcl.playing import APPLICATION, producing, unfinished
from tests.interop.kcl.stage import FAILOVER_MILLIS, Stage
from tests.streams import merge_neighbours, split

WORKERS = 3


def replacement(python: Path, first: str, then: str) -> Callable[[Stage], Outcome]:
    """Return the scenario: workers of the kind ``first`` are ended, and ones of ``then`` started.

    The kinds are "old", run by ``python``, and "new". Streams are resharded all the while, and one
    worker of each kind is killed.
    """
    pythons = {"old": str(python), "new": sys.executable}

    def start(on: Stage, name: str) -> None:
        on.start_ours(name, APPLICATION, python=pythons[name[:3]])

    def play(on: Stage) -> Outcome:
        keys = [
            key for stream in on.streams for key in (*on.keys(stream), f"{stream}/x", f"{stream}/y")
        ]
        with producing(on, keys):
            names = [f"{first}{number}" for number in range(WORKERS)]
            for name in names:
                start(on, name)
            on.wait_until("a batch of each worker", lambda: on.readers() >= set(names))
            for number, name in enumerate(names):
                split(on.kinesis, on.streams[number])
                if number == 1:
                    on.kill(name)
                else:
                    on.end(name)
                start(on, new := f"{then}{number}")
                on.wait_until(f"a batch of {new}", lambda new=new: on.has_read(new))  # type: ignore[misc]
                merge_neighbours(on.kinesis, on.streams[number])
            on.kill(f"{then}0")
            start(on, f"{then}3")
            on.wait_until(f"a batch of {then}3", lambda: on.has_read(f"{then}3"))
            time.sleep(2.0)  # so that the new shards get records, too
        verdict = on.verdict()
        on.wait_until("the end of each closed shard", lambda: not unfinished(on))
        for number in range(1, WORKERS + 1):
            on.end(f"{then}{number}")
        found = [
            f"{shard} was in dispute for {seconds:.1f} s"
            for shard, seconds in disputes(on.lines()).items()
            if seconds > FAILOVER_MILLIS / 1000
        ]
        return Outcome(
            verdict, on.problems() + unfinished(on) + found, repeats=on.repeats(), may_repeat=True
        )

    return play


def disputes(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds for which two readers were given records of a shard, by shard. Pure.

    From the first records of a reader to the last ones of another that had begun before, and has
    not begun anew. ``lines``: of records and beginnings (``from``), each with its time ``at``.
    """
    found: defaultdict[str, float] = defaultdict(float)
    begun: dict[tuple[str, str], int] = {}
    newest: dict[str, tuple[int, float | None]] = {}
    """By shard: the number of the last beginning, and the time of its first records."""
    for number, line in enumerate(sorted(lines, key=lambda one: float(one["at"]))):
        reader, shard, at = str(line["reader"]), str(line["shard"]), float(line["at"])
        if "from" in line:
            begun[reader, shard] = number
            newest[shard] = (number, None)
        elif "records" in line:
            last, since = newest[shard]
            if begun[reader, shard] == last:
                newest[shard] = (last, at if since is None else since)
            elif since is not None:
                found[shard] = max(found[shard], at - since)
    return dict(found)


def upgrades(revision: str) -> Iterable[tuple[str, Callable[[Stage], Outcome]]]:
    """Return the scenarios of an upgrade and of a downgrade, after installing the revision."""
    python = installed(before(revision))
    yield f"{revision} is replaced by this revision", replacement(python, "old", "new")
    yield f"this revision is replaced by {revision}", replacement(python, "new", "old")
