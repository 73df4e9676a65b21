"""The invariants of an application of several streams.

Those of one stream hold for each of them; see `parts`. The others tell the streams apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation.invariants import IN_THE_END, OF_SHARDS, OF_WORKERS
from tests.simulation.rules import broken
from tests.simulation.several.former import (
    former_leases_are_deleted_by_the_rules,
    former_streams_are_left,
)
from tests.simulation.several.neighbours import (
    leases_are_renewed_in_time,
    other_streams_are_read_in_time,
)
from tests.simulation.several.parts import all_parts, current_parts
from tests.simulation.several.world import SeveralWorld


def streams_are_kept_apart(world: SeveralWorld) -> Iterator[str]:
    """A record processor is given records of its own stream only, and not of another epoch's."""
    for entry in world.journal.entries:
        if entry.what == "stray":
            yield f"at {entry.at:.3f} {entry.process} was given, as {entry.shard}, {entry.about}"


def leases_name_their_streams(world: SeveralWorld) -> Iterator[str]:
    """Each lease is of a shard of a stream that is there, or was, and says so in its row."""
    for write in world.table.writes:
        if write.after is None:
            continue
        life, shard = world.life_of(write.key), write.key.rpartition(":")[2]
        if life is None or shard not in life.producer.shards:
            yield f"at {write.at:.3f} {write.by} wrote the lease {write.key} of no shard"
            continue
        told = {name: write.after.get(name, {}).get("S") for name in ("streamName", "shardId")}
        if told != {"streamName": life.identifier, "shardId": shard}:
            yield f"at {write.at:.3f} {write.by} wrote {told} into the lease {write.key}"


_OF_STREAMS: tuple[Callable[[SeveralWorld], Iterator[str]], ...] = (
    streams_are_kept_apart,
    leases_name_their_streams,
    former_streams_are_left,
    former_leases_are_deleted_by_the_rules,
    other_streams_are_read_in_time,
    leases_are_renewed_in_time,
)


def check(world: SeveralWorld) -> list[str]:
    """All that is wrong with a world, by the invariants' names."""
    wrong = [*broken(_OF_STREAMS, world), *broken(OF_WORKERS, world.as_one())]
    for part in all_parts(world):
        if any(entry.what == "stray" for entry in part.journal.entries):
            continue  # places in it are those of another stream
        wrong += broken(OF_SHARDS, part, part.life.identifier)
    for part in current_parts(world):
        wrong += broken(IN_THE_END, part, part.life.identifier)
    return wrong
