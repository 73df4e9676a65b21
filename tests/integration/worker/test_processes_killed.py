"""W10: kill -9 of workers and of their supervisor loses nothing, and leaves nobody.

The instants are random: each is when so many of the records are still missing. Shards split and
merge in between.
"""

from __future__ import annotations

import functools
import os
import random
import signal
from collections import defaultdict
from typing import Any

import pytest

from tests.integration.worker.process_session import Program, members
from tests.pace import eventually
from tests.streams import active_shards, merge_neighbours, split

KEYS = [f"key-{n}" for n in range(20)]
ROUNDS = 5


class Produced:
    """Puts records to which each key has a next one."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self.rounds = 0

    def more(self) -> None:
        for number in range(self.rounds, self.rounds + ROUNDS):
            entries = [{"Data": f"{key}:{number}".encode(), "PartitionKey": key} for key in KEYS]
            self._kinesis.put_records(StreamName=self._stream, Records=entries)
        self.rounds += ROUNDS

    @property
    def records(self) -> int:
        return self.rounds * len(KEYS)

    def reshard(self, rng: random.Random, *, is_merge: bool) -> None:
        if is_merge and len(active_shards(self._kinesis, self._stream)) > 2:
            merge_neighbours(self._kinesis, self._stream, rng)
        else:
            split(self._kinesis, self._stream, rng)


def has_processed(program: Program, records: int) -> bool:
    return len(program.processed()) >= records


def has_ended(session: int) -> bool:
    return not members(session)


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.long)])
def test_kills_of_either_side_lose_nothing_and_leave_no_orphan(
    program: Program, kinesis: Any, kills: int
) -> None:
    rng = random.Random(kills)
    produced = Produced(kinesis, program.stream)
    program.start()
    for n in range(kills):
        produced.more()
        produced.reshard(rng, is_merge=bool(n % 2))
        produced.more()
        missing = rng.randrange(2 * ROUNDS * len(KEYS))
        wanted = produced.records - missing
        eventually(functools.partial(has_processed, program, wanted))
        if n % 3 == 1:
            killed = program.pid
            os.kill(killed, signal.SIGKILL)
            program.wait()
            program.start()
            eventually(functools.partial(has_ended, killed))
        else:
            eventually(program.workers)
            os.kill(rng.choice(program.workers()), signal.SIGKILL)
    eventually(lambda: len(program.processed()) == produced.records)
    eventually(lambda: len(program.workers()) == 2)
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait() == 0, program.said()
    eventually(lambda: not program.left())

    first_seen: dict[str, dict[int, None]] = defaultdict(dict)
    for event in program.events():
        for key, _, number in (data.partition(":") for data in event.get("data", ())):
            first_seen[key].setdefault(int(number))
    assert {key: list(seen) for key, seen in first_seen.items()} == {
        key: list(range(produced.rounds)) for key in KEYS
    }
