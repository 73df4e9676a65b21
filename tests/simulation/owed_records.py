"""The records that an application owes: those that it has to process, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkinesis.lease.extended_sequence_number import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from tests.simulation.dynamodb import Write
from tests.simulation.journal import EPOCH_MS
from tests.simulation.producer import ShardLog
from tests.simulation.replay import (
    Replay,
    expired_before_ms,
    had_expired,
    jitter_ms,
    ms,
    slack_ms,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

_FOR_EVER = float("inf")
_END = ExtendedSequenceNumber(SHARD_END)


@dataclass(frozen=True, slots=True)
class Move:
    """A shard of which reading goes on elsewhere, as somebody wanted."""

    at: float
    to: ExtendedSequenceNumber
    timestamp_ms: int | None
    is_sure: bool
    """True if the reset has taken effect: everything after it has to be processed again."""

    def passes_over(self, log: ShardLog, index: int, jitter: int) -> bool:
        """True if the reset moves the reader past a record."""
        name = self.to.sequence_number
        if name in {LATEST, AT_TIMESTAMP}:
            return log.arrivals[index] < (self.timestamp_ms or 0) + jitter
        if name == TRIM_HORIZON:
            return False
        if self.to.is_shard_end:
            return True
        return log.places[index] <= (name, self.to.sub_sequence_number)


def beginning_ms(world: World) -> int:
    """Records that arrived before it, nobody has asked for."""
    position = world.history.initial_position
    if isinstance(position, float | int):
        return EPOCH_MS + round(position * 1000)
    if position == "trim_horizon":
        return 0
    made = next((ms(write.at) for write in world.table.writes), ms(world.scheduler.now))
    return made + slack_ms(world)


def moves(world: World) -> dict[str, list[Move]]:
    """All changes of position in order, by shard.

    They are resets by an operator or a record processor, and new leases for deleted ones.

    A lease that was deleted by hand may be missing until its shard has been resharded. The lease of
    the shard's descendant then also decides where reading of the shard itself resumes. The same
    holds for a lease that an operator creates, for the ancestors that had none yet: LATEST finishes
    them. And for a lease that a worker creates at LATEST for a descendant of expired shards alone,
    after all workers were away: an ancestor that was still open before the audit would have got the
    same position, behind the same records. This applies only if no ancestor has a lease, and to
    shards that never had one.
    """
    found: dict[str, list[Move]] = {}
    rows: set[str] = set()
    once: set[str] = set()
    for write, before, after in world.moves_of_leases():
        if after is None:
            rows.discard(write.key)
            continue
        rows.add(write.key)
        once.add(write.key)
        place = after.checkpoint, after.timestamp_ms
        by_operator = write.by in world.table_writers.operators
        # A shard of which no ancestor has a lease any more begins at the initial position, as in a
        # KCL: that the lease is rightly made so is looked at elsewhere.
        is_anew = before is None and (
            write.key in world.table_writers.deleted or place[1] is not None
        )
        is_moved = before is not None and place[0].is_sentinel and not place[0].is_shard_end
        if is_moved and before is not None and before.checkpoint == place[0]:
            is_moved = before.timestamp_ms is not None  # an instant for a KCL's LATEST is none
        if by_operator or is_anew or is_moved:
            found.setdefault(write.key, []).append(Move(write.at, *place, by_operator))
        if before is None and (is_anew or by_operator):
            left_out, above = _moved_too(world, write, place, rows, once)
            for shard in left_out:
                found.setdefault(shard, []).append(above)
    for entry in world.journal.entries:
        if entry.what != "reset":
            continue
        # That it has landed is sure now; where, the row says.
        mine = [move for move in found.get(entry.shard, []) if move.at <= entry.at]
        if mine:
            last = max(mine, key=lambda move: move.at)
            found[entry.shard].append(Move(entry.at, last.to, last.timestamp_ms, True))
    return {shard: sorted(each, key=lambda move: move.at) for shard, each in found.items()}


def _moved_too(
    world: World,
    write: Write,
    place: tuple[ExtendedSequenceNumber, int | None],
    rows: set[str],
    once: set[str],
) -> tuple[set[str], Move]:
    """The ancestors without leases that a new lease at a place moves too, and their move.

    ``rows``: the shards that have leases. ``once``: those that ever had one.
    """
    operator = None if write.by is None else world.table_writers.operators.get(write.by)
    ends = world.table_writers.deleted if operator is None else None
    gone = _expired(world, write.at)
    is_latest = place[0].sequence_number == LATEST
    if ends is not None and is_latest and not _descends(world, write.key, rows, gone):
        ends = ends | gone
    if operator is not None and operator.to == LATEST:
        place = _END, None
    # A lease that a hand deleted bars no way, neither to a worker nor to an operator.
    barring = rows | (once - (world.table_writers.deleted if ends is None else ends))
    left_out = _left_out(world, write.key, barring, ends)
    return left_out, Move(write.at, *place, is_sure=False)


def _expired(world: World, at: float) -> set[str]:
    """The shards that the service did not tell of any more."""
    gone_ms = world.producer.horizon_ms(ms(at))
    shards = world.producer.shards.values()
    return {s.id for s in shards if s.closed_ms is not None and s.closed_ms < gone_ms}


def _descends(world: World, key: str, leased: set[str], gone: set[str]) -> bool:
    """True if an ancestor of a shard has a lease, as far as the service lists shards."""
    return any(
        parent in leased or (parent not in gone and _descends(world, parent, leased, gone))
        for parent in world.producer.shards[key].parents
    )


def _left_out(world: World, key: str, leased: set[str], ends: set[str] | None) -> set[str]:
    """The shards from which one came, up to one of ``ends``; None: all that had no lease.

    ``leased``: shards that bar the way there.
    """
    found: set[str] = set()
    for parent in world.producer.shards[key].parents:
        if parent in leased:
            continue
        is_end = ends is not None and parent in ends
        above = set() if is_end else _left_out(world, parent, leased, ends)
        if above or is_end or ends is None:
            found |= {parent, *above}
    return found


def excused(world: World, replay: Replay, at: float = _FOR_EVER) -> set[str]:
    """The data of records that need not be processed, as far as shards were moved until then."""
    return {data for data, due in _dues(world, replay, at) if due is None}


def is_passed_over(world: World, datas: Iterable[str]) -> bool:
    """True if reading of a shard has meanwhile resumed after one of these records."""
    moved, jitter = moves(world), jitter_ms(world)
    for data in datas:
        shard, index = world.producer.where[data]
        log = world.producer.logs[shard]
        if any(
            move.at > log.put_at[index] and move.passes_over(log, index, jitter)
            for move in moved.get(shard, ())
        ):
            return True
    return False


def owed(world: World) -> list[str]:
    """The records that are still to be processed, as text."""
    replay = Replay(world)
    wrong = []
    for data, due in _dues(world, replay):
        done = world.journal.processed.get(data, -1.0)
        if due is not None and done < due:
            shard, index = world.producer.where[data]
            since = "" if done < 0 else f" since its shard was moved at {due:.3f}"
            wrong.append(f"{data} (record {index} of {shard}) was not processed{since}")
    return wrong


def _dues(
    world: World, replay: Replay, until: float = _FOR_EVER
) -> Iterator[tuple[str, float | None]]:
    """Yields each record with the earliest time of its processing; None: the record is not owed."""
    first_ms, jitter = beginning_ms(world) + jitter_ms(world), jitter_ms(world)
    if first_ms == jitter:
        first_ms = 0
    moved = moves(world)
    begun = {entry.shard for entry in world.journal.entries if entry.what == "initialize"}
    gone_ms = world.producer.horizon_ms(ms(world.scheduler.now))
    before_ms = expired_before_ms(world)
    told = {shard for _, _, shard in world.told}
    given_up = world.journal.dead_letters | replay.passed
    for shard, log in world.producer.logs.items():
        # Nor can anybody read on who has begun, where a hand has deleted the lease.
        is_left = shard not in begun or shard in world.table_writers.deleted
        is_told = is_left and not told.isdisjoint(_line(world, shard))
        for index, data in enumerate(log.data):
            arrival_ms = log.arrivals[index]
            due: float | None = 0.0
            if arrival_ms < first_ms or data in given_up:
                due = None
            if arrival_ms < before_ms or (arrival_ms < gone_ms and is_told):
                due = None
            for move in moved.get(shard, ()):
                if move.at > until:
                    break
                if move.passes_over(log, index, jitter) or (
                    move.to.sequence_number == TRIM_HORIZON
                    and had_expired(world, arrival_ms, move.at)
                ):
                    due = None
                elif move.is_sure and data not in given_up and arrival_ms >= gone_ms:
                    due = move.at if log.put_at[index] <= move.at else 0.0
            yield data, due


def _line(world: World, shard_id: str) -> set[str]:
    """A shard, what it came from, and what came from it.

    Of a line of shards that came and expired while nobody was there, nobody can tell all: the
    first is told by its lease, and the last by what came from it.
    """
    shards = world.producer.shards
    found, todo = {shard_id}, [shard_id]
    while todo:
        todo += shards[todo.pop()].parents
        found.update(todo)
    todo = [shard_id]
    while todo:
        todo += [child.id for child in shards[todo.pop()].children]
        found.update(todo)
    return found
