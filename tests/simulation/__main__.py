"""Plays random histories: ``python -m tests.simulation --seconds 600 --seed 1``.

Uses one process for each core, and gives each subject the same time. Exits with 1 if a history
breaks an invariant, whose story is printed, or if no history of a subject was played.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context

from tests.simulation.bug_table import rows
from tests.simulation.rounds import Round, Tally, play_round
from tests.simulation.subjects import SUBJECTS
from tests.simulation.turns import Turns

_NAMES = [subject.name for subject in SUBJECTS]


def run(given: argparse.Namespace, seed: int) -> dict[str, Tally]:
    """Plays until the time is over or an invariant breaks; returns the tallies by subject."""
    began = time.time()
    names = [given.subject] if given.subject else _NAMES
    tallies = {name: Tally() for name in names}
    turns = Turns(names, seed, jobs=given.jobs, seconds=given.seconds, histories=given.histories)
    under_way: dict[Future[Tally], Round] = {}
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        while True:
            if not any(tally.story for tally in tallies.values()):
                while len(under_way) < given.jobs and (each := turns.take()) is not None:
                    under_way[pool.submit(play_round, each)] = each
            if not under_way:
                return tallies
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                played = under_way.pop(done)
                turns.end(played, done.result().seconds)
                tallies[played.subject].add(done.result())
            sum_, elapsed = Tally(), time.time() - began
            for tally in tallies.values():
                sum_.add(tally)
            print(f"{elapsed:5.0f} s: {sum_.told(elapsed)}", file=sys.stderr, flush=True)


def without_histories(tallies: Mapping[str, Tally]) -> str | None:
    """Returns what to do about subjects of which nothing was played; None if there are none."""
    names = [name for name, tally in tallies.items() if not tally.histories and not tally.story]
    if not names:
        return None
    return f"No history was played of {', '.join(names)}: nothing is known of them. Play longer."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seconds", type=float, help="duration; default: 60 without --histories")
    parser.add_argument("--histories", type=int, help="the number of histories to play")
    parser.add_argument("--seed", type=int, help="default: drawn at random, and printed")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes; default: one for each core",
    )
    parser.add_argument("--subject", choices=_NAMES, help="play only this one; default: all")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--bugs",
        action="store_true",
        help="instead, hunt each planted bug, and count the histories that it takes",
    )
    given = parser.parse_args()
    if given.bugs:
        for row in rows([given.subject] if given.subject else _NAMES, given.jobs):
            print(row, flush=True)
        return 0
    if given.seconds is None and given.histories is None:
        given.seconds = 60.0
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"Seed {seed}, {given.jobs} processes", file=sys.stderr, flush=True)
    began = time.time()
    tallies = run(given, seed)
    elapsed = time.time() - began
    stories = [tally.story for tally in tallies.values() if tally.story]
    if given.json:
        told = {name: asdict(tally) for name, tally in tallies.items()}
        print(json.dumps({"seed": seed, "seconds": elapsed, "subjects": told}, indent=2))
    else:
        for name, tally in tallies.items():
            print(f"{name}: {tally.told(elapsed)}")
        print(*stories, sep="\n\n", end="\n" if stories else "")
    # A broken invariant ends the run early, and is enough to know.
    missing = None if stories else without_histories(tallies)
    if missing is not None:
        print(missing, file=sys.stderr)
    return 1 if stories or missing is not None else 0


if __name__ == "__main__":
    sys.exit(main())
