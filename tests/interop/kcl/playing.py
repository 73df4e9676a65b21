"""What scenarios do while workers are at work: put records, kill a worker, look for the end."""

from __future__ import annotations

import itertools
import time
from contextlib import AbstractContextManager
from string import ascii_lowercase

from tests.interop.kcl.stage import Stage
from tests.repeating import repeating

APPLICATION = "interop"
TURN = 0.5
"""Seconds between two turns of the producer, at least."""


def kill_at_work(on: Stage, name: str) -> None:
    """Kill a worker that was given something since this call, and has not checkpointed that."""
    since = time.monotonic()

    def is_at_work() -> bool:
        mine = [line for line in on.lines() if line["reader"] == name]
        return bool(mine) and "records" in mine[-1] and mine[-1]["at"] > since

    on.wait_until(f"a batch of {name} without a checkpoint", is_at_work)
    on.kill(name)


def unfinished(on: Stage) -> list[str]:
    """Return a sentence for each closed shard that no worker has finished, or its row not."""
    ended = {line["shard"] for line in on.lines() if line.get("checkpoint", [""])[0] == "SHARD_END"}
    rows = on.rows(APPLICATION)
    found = []
    for stream in on.streams:
        for shard in on.kinesis.list_shards(StreamName=stream)["Shards"]:
            key = f"{on.identifier(stream)}:{shard['ShardId']}"
            if "EndingSequenceNumber" in shard["SequenceNumberRange"]:
                row = rows.get(key, {"checkpoint": {"S": "SHARD_END"}})
                if key not in ended or row["checkpoint"]["S"] != "SHARD_END":
                    found.append(f"{key} is not finished")
    return found


def many_keys(on: Stage) -> list[str]:
    """Return so many keys that each shard gets records, and the leases of its parents are deleted.

    A Java KCL in 2.x mode counts the leases of finished shards as shares, too.
    """
    return [f"{stream}/{letter}" for stream in on.streams for letter in ascii_lowercase[:12]]


def producing(on: Stage, keys: list[str]) -> AbstractContextManager[None]:
    """Puts turn after turn, in a thread: aggregates of one key each, and plain records."""
    turns = itertools.count(1)

    def put() -> None:
        turn = next(turns)
        for number, key in enumerate(keys):
            if (turn + number) % 2:
                on.put_packed(key, 4)
            else:
                on.put_plain(key)

    return repeating(put, TURN)
