"""Plays random histories: ``python -m tests.simulation --seconds 600 --seed 1``.

Uses one process for each core. Exits with 1 and prints the story if a history breaks an invariant.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context

from tests.simulation.bug_table import hunts, row
from tests.simulation.rounds import HISTORIES, Round, Tally, play_round
from tests.simulation.subjects import SUBJECTS

_NAMES = [subject.name for subject in SUBJECTS]


def rounds(
    names: Sequence[str], seed: int, deadline: float, histories: int | None
) -> Iterator[Round]:
    """Yields rounds, of one subject after the other."""
    left = histories
    for number in itertools.count():
        if time.time() > deadline or left == 0:
            return
        size = HISTORIES if left is None else min(HISTORIES, left)
        left = None if left is None else left - size
        yield Round(names[number % len(names)], seed, number, size, deadline)


def run(given: argparse.Namespace, seed: int) -> dict[str, Tally]:
    """Plays until the time is over or an invariant breaks; returns the tallies by subject."""
    began = time.time()
    deadline = began + given.seconds if given.seconds is not None else float("inf")
    names = [given.subject] if given.subject else _NAMES
    tallies = {name: Tally() for name in names}
    ahead = rounds(names, seed, deadline, given.histories)
    under_way: dict[Future[Tally], Round] = {}
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        while True:
            if not any(tally.story for tally in tallies.values()):
                for each in itertools.islice(ahead, given.jobs - len(under_way)):
                    under_way[pool.submit(play_round, each)] = each
            if not under_way:
                return tallies
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                tallies[under_way.pop(done).subject].add(done.result())
            sum_, elapsed = Tally(), time.time() - began
            for tally in tallies.values():
                sum_.add(tally)
            print(f"{elapsed:5.0f} s: {sum_.told(elapsed)}", file=sys.stderr, flush=True)


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
        help="instead, count the histories until each deliberate bug is found",
    )
    given = parser.parse_args()
    if given.bugs:
        for found in hunts([given.subject] if given.subject else _NAMES, given.jobs):
            print(row(found), flush=True)
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
    return 1 if stories else 0


if __name__ == "__main__":
    sys.exit(main())
