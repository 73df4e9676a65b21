"""Invariants of automatic checkpoints, and of children that do not wait for their parents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.lifecycle.shard.concurrent_delivery import _OPEN
from tests.simulation.calm import Calm
from tests.simulation.journal import EPOCH_MS, Entry, Place
from tests.simulation.owed_records import excused
from tests.simulation.producer import ShardLog
from tests.simulation.replay import Replay
from tests.simulation.world import World

_END = 1 << 60
"""The index of a checkpoint at the end of a shard."""
_WRITE = 3.0
"""Seconds within which a checkpoint that is due is in the table, if nothing fails."""


@dataclass
class _Reader:
    """The calls of one record processor."""

    first: Entry
    given: list[Place] = field(default_factory=list)
    """The first record of each call, also of those that failed."""
    calls: list[tuple[float, float, tuple[Place, ...]]] = field(default_factory=list)
    """The calls of ``process_records`` that succeeded: begin, end, places."""
    busy: list[tuple[float, float]] = field(default_factory=list)
    """All of its calls: begin and end."""
    asked: Entry | None = None
    """Its ``shutdown_requested``, unless that raised."""
    ended: Entry | None = None
    has_moved: bool = False

    def follow(self, entry: Entry, begun: dict[tuple[int, Place], float]) -> None:
        """Notes one of its entries. ``begun``: the calls that run."""
        what, about = entry.what, entry.about
        has_raised = what == "raised"
        if what == "records":
            begun[entry.reader, about[0]] = entry.at
            self.given.append(about[0])
        elif what == "processed" or (has_raised and about[0] == "records"):
            places = about[2] if has_raised else about
            since = begun.pop((entry.reader, places[0]))
            self.busy.append((since, entry.at))
            if not has_raised:
                self.calls.append((since, entry.at, tuple(places)))
        elif what == "shutdown_requested":
            self.asked = entry
        elif has_raised and about[0] == "shutdown_requested":
            self.asked = None
        elif what in {"lease_lost", "shard_ended"}:
            self.ended = self.ended or entry
        elif what == "resets":
            self.has_moved = True


def _readers(world: World) -> dict[int, _Reader]:
    found: dict[int, _Reader] = {}
    begun: dict[tuple[int, Place], float] = {}
    for entry in world.journal.entries:
        if entry.what == "initialize":
            found.setdefault(entry.reader, _Reader(entry))
        reader = found.get(entry.reader)
        if reader is None:
            continue
        reader.follow(entry, begun)
    for (number, _), since in begun.items():
        found[number].busy.append((since, float("inf")))
    if world.options.concurrency is not None:
        for reader in found.values():
            if reader.given:
                _line_up(reader, world.producer.logs[reader.first.shard])
    return found


def _line_up(reader: _Reader, log: ShardLog) -> None:
    """Changes calls that overlap into those of the unbroken run, as if each ended it anew.

    A checkpoint does not wait for calls.
    """
    ended = {log.index[call[2][0]]: call for call in reader.calls}
    reader.calls, reader.busy = [], []
    index = min(log.index[place] for place in reader.given)
    last = (0.0, 0.0)
    while index in ended:
        begin, end, places = ended[index]
        last = max(last, (end, begin))
        reader.calls.append((last[1], last[0], places))
        index += 1


class _Checkpoints:
    """The checkpoint of each shard's row at any time, as the index of a record."""

    def __init__(self, world: World) -> None:
        self._logs = world.producer.logs
        self._times: dict[str, list[float]] = {}
        self._places: dict[str, list[ExtendedSequenceNumber]] = {}
        for write, _, after in world.leases():
            if after is not None:
                self._times.setdefault(write.key, []).append(write.at)
                self._places.setdefault(write.key, []).append(after.checkpoint)

    def at(self, shard: str, time: float) -> int:
        place = bisect_right(self._times.get(shard, []), time)
        if not place:
            return -1
        return self.index(shard, self._places[shard][place - 1])

    def index(self, shard: str, at: ExtendedSequenceNumber) -> int:
        if at.is_sentinel:
            return _END if at.is_shard_end else -1
        places = self._logs[shard].places
        wanted = (int(at.sequence_number), at.sub_sequence_number)
        # A checkpoint may have a sub-sequence number of a record that was not unpacked.
        return bisect_right(places, wanted, key=lambda place: (int(place[0]), place[1])) - 1


def automatic_checkpoints_cover_processed_records(world: World) -> Iterator[str]:
    """What a checkpoint covers was processed without error before, or need not be."""
    if not world.history.is_automatic:
        return
    checkpoints, replay = _Checkpoints(world), None
    looked_at: dict[str, int] = {}
    for write, before, after in world.leases():
        if before is None or after is None or before.checkpoint == after.checkpoint:
            continue
        if write.by is None or write.by in world.table_writers.operators:
            continue
        log = world.producer.logs.get(write.key, ShardLog())
        until = min(checkpoints.index(write.key, after.checkpoint), len(log.places) - 1)
        for index in range(looked_at.get(write.key, 0), until + 1):
            looked_at[write.key] = index + 1
            data = log.data[index]
            if world.journal.first_processed.get(data, float("inf")) <= write.at:
                continue
            replay = replay or Replay(world)
            if data not in excused(world, replay) | excused(world, replay, write.at):
                yield (
                    f"at {write.at:.3f} {write.by} checkpointed {write.key} at "
                    f"{after.checkpoint}, before {data} was processed"
                )
                break


def no_more_than_the_interval_is_repeated(world: World) -> Iterator[str]:
    """No reader has processed more than ``checkpoint_records`` behind the row's checkpoint.

    With ``concurrency``, one record may hold up the run of all that are open.
    """
    most = world.options.checkpoint_records
    if most is None or world.history.behaviour.prepare:
        return
    most += _OPEN * (world.options.concurrency or 0)
    checkpoints, moved = _Checkpoints(world), _moved(world)
    for reader in _readers(world).values():
        shard = reader.first.shard
        if shard in moved:
            continue
        index = world.producer.logs[shard].index if shard in world.producer.logs else {}
        done: list[int] = []
        for _, at, places in reader.calls:
            done += [index[place] for place in places]
            covered = checkpoints.at(shard, at)
            behind = sum(one > covered for one in done)
            if behind > most:
                yield (
                    f"at {at:.3f} {reader.first.process} had processed {behind} records of {shard} "
                    f"behind its checkpoint; {most} are allowed"
                )
                break


def automatic_checkpoints_come_in_time(world: World) -> Iterator[str]:
    """What was processed is checkpointed ``checkpoint_seconds`` after that began.

    Or when the call is over that is running then; in a loop, whenever it comes to the shard again.
    """
    seconds = world.options.checkpoint_seconds
    if seconds is None or _is_left(world) or world.history.way == "loop":
        return
    checkpoints, moved, calm = _Checkpoints(world), _moved(world), Calm(world)
    for reader in _readers(world).values():
        shard = reader.first.shard
        end = world.leaving_at if reader.ended is None else reader.ended.at
        if shard in moved:
            continue
        for began, ended, places in reader.calls:
            due = max(began + seconds, ended)
            due = next((until for since, until in reader.busy if since <= due < until), due)
            until = due + _WRITE
            if until > end or not calm.is_calm(began, until):
                continue
            last = world.producer.logs[shard].index[places[-1]]
            if checkpoints.at(shard, until) < last:
                yield (
                    f"{reader.first.process} processed record {last} of {shard} at {ended:.3f}, "
                    f"and it was not checkpointed at {until:.3f}"
                )
                break


def shutdowns_checkpoint_what_was_processed(world: World) -> Iterator[str]:
    """A reader that leaves its shard gracefully leaves nothing to repeat."""
    if not world.history.is_automatic or _is_left(world):
        return
    checkpoints, moved, calm = _Checkpoints(world), _moved(world), Calm(world)
    for reader in _readers(world).values():
        shard, asked, ended = reader.first.shard, reader.asked, reader.ended
        if asked is None or ended is None or shard in moved or not reader.calls:
            continue
        if reader.first.process in world.fleet.ungraceful:
            continue
        was_calm = calm.is_calm(asked.at, min(ended.at, world.leaving_at))
        if not was_calm or ended.at - asked.at > world.options.failover_time / 2:
            continue
        last = max(world.producer.logs[shard].index[p] for _, _, ps in reader.calls for p in ps)
        if checkpoints.at(shard, ended.at) < last:
            yield (
                f"at {ended.at:.3f} {reader.first.process} left {shard} without a checkpoint of "
                f"record {last}"
            )


def _is_left(world: World) -> bool:
    """True if shards may be left without a word, or a checkpoint be prepared for long."""
    is_left = world.history.on_error == "stop" or world.options.give_up_after_limit
    return bool(is_left or world.history.behaviour.prepare)


def _moved(world: World) -> set[str]:
    """The shards that somebody has moved."""
    moved = {write.key for write in world.table.writes if write.by in world.table_writers.operators}
    moved |= {entry.shard for entry in world.journal.entries if entry.what == "resets"}
    return moved | set(world.table_writers.deleted)


def children_begin_at_once(world: World) -> Iterator[str]:
    """With ``parents_first=False``, a worker begins with a shard soon after it has the lease."""
    if world.options.parents_first or world.options.skip_older_than is not None:
        return
    calm, soon = Calm(world), 10.0
    begun: dict[tuple[str, str], list[float]] = {}
    for entry in world.journal.entries:
        if entry.what == "initialize":
            begun.setdefault((entry.process, entry.shard), []).append(entry.at)
    owned: dict[str, tuple[float, str | None]] = {}

    def late(key: str, until: float) -> str | None:
        since, process = owned.get(key, (0.0, None))
        if process is None or until - since <= soon or not calm.is_calm(since, since + soon):
            return None
        times = begun.get((process, key), [])
        if any(since <= at <= since + soon for at in times):
            return None
        return f"{process} took {key} at {since:.3f} and did not begin with it"

    for write, before, after in world.leases():
        owner = None if after is None else after.actual_owner
        if before is not None and before.actual_owner == owner:
            continue
        if (text := late(write.key, write.at)) is not None:
            yield text
        is_read = after is not None and not after.is_finished
        by = write.by.name if write.by is not None and is_read and owner else None
        is_own = write.by is not None and world.fleet.worker_ids.get(write.by) == owner
        owned[write.key] = (write.at, by if is_own else None)
    for key in owned:
        if (text := late(key, world.leaving_at)) is not None:
            yield text


def children_get_leases_in_time(world: World) -> Iterator[str]:
    """With ``parents_first=False``, a listed shard has a lease soon after its parents have."""
    if world.options.parents_first:
        return
    calm, options = Calm(world), world.options
    soon = 2 * options.audit_interval + 10.0
    made: dict[str, float] = {}
    finished: dict[str, float] = {}
    for write, before, after in world.leases():
        if before is None:
            made.setdefault(write.key, write.at)
        if after is not None and after.is_finished:
            finished.setdefault(write.key, write.at)
    for shard in world.producer.shards.values():
        parents = [world.producer.shards[parent] for parent in shard.parents]
        if not parents or not all(parent.id in made for parent in parents):
            continue
        closed = max((parent.closed_ms or 0) for parent in parents)
        since = max((closed - EPOCH_MS) / 1000, *(made[parent.id] for parent in parents))
        until = since + soon
        is_read = any(finished.get(parent.id, float("inf")) > until for parent in parents)
        if not is_read or world.table_writers.deleted or world.table_writers.operators:
            continue
        if not world.fleet.has_worker(since, until):
            continue
        if calm.is_calm(since, until) and made.get(shard.id, float("inf")) > until:
            yield f"{shard.id} has no lease at {until:.3f}, and its parents are read since {since}"


RELAXED: tuple[Callable[[World], Iterator[str]], ...] = (
    automatic_checkpoints_cover_processed_records,
    no_more_than_the_interval_is_repeated,
    automatic_checkpoints_come_in_time,
    shutdowns_checkpoint_what_was_processed,
    children_begin_at_once,
    children_get_leases_in_time,
)
