"""From the start of a process to its first record, with a lease table that does not exist yet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.local_server import Client, local_kinesis
from benchmarks.peers.competitors import Competitor
from benchmarks.peers.figures import Sample
from benchmarks.peers.processes import Consumer, consumer
from benchmarks.peers.records import Backlog

CASE = "start, no table yet"
STREAM = "started"
SHARDS = 4
PATIENCE = 240.0


def measure(
    pythons: Mapping[Competitor, Path], rounds: int, scale: float, say: Callable[[str], None]
) -> Iterator[Sample]:
    """In turn, but for those that mostly wait for minutes: all their rounds at once, at the end."""
    del scale
    with local_kinesis("--dynamodb", has_own_core=True) as client, contextlib.ExitStack() as stack:
        client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        Backlog(SHARDS, SHARDS, 200).put(client.endpoint, STREAM)
        for number in range(rounds):
            quick = [each for each in pythons if not each.starts_slowly]
            for each in quick if number % 2 == 0 else quick[::-1]:
                say(f"{CASE}: round {number + 1} of {rounds}, {each.name}")
                task = _task(client, each, number)
                with consumer(pythons[each], each.consumer, **task) as running:
                    yield from _samples(each, running)
        slow = [
            (each, stack.enter_context(consumer(python, each.consumer, **_task(client, each, n))))
            for each, python in pythons.items()
            if each.starts_slowly
            for n in range(rounds)
        ]
        for each, running in slow:
            say(f"{CASE}: {each.name}")
            yield from _samples(each, running)


def _task(client: Client, competitor: Competitor, number: int) -> dict[str, Any]:
    return {
        "endpoint": client.endpoint,
        "stream": STREAM,
        "application": f"{competitor.name.replace(' ', '-')}-start-{number}",
        "worker": "worker",
    }


def _samples(competitor: Competitor, running: Consumer) -> Iterator[Sample]:
    if not running.wait_for(1, PATIENCE, PATIENCE):
        return
    yield Sample(CASE, "CPU", "s", competitor.name, running.cpu())
    seconds = running.batches[0].at - running.started
    yield Sample(CASE, "time", "s", competitor.name, seconds)
