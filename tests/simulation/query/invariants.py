"""The invariants of every query's world: functions over what was recorded (P: docs/properties.md).

Each yields its violations as text. `check` calls all of them.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator

from sparkinesis.errors import DataLossError, OffsetError
from sparkinesis.source.offsets import from_json
from sparkinesis.stream.position import sequence_order
from tests.simulation.query.checkpoint import Row
from tests.simulation.query.cluster import JobFailedError, Try
from tests.simulation.query.expected import (
    delivered,
    has_lag,
    has_skew,
    missing,
    put_rows,
    unwanted,
)
from tests.simulation.query.history import STREAMS, Trouble
from tests.simulation.query.lives import RETENTION_HOURS, Life
from tests.simulation.query.streams import LARGEST_AGGREGATE
from tests.simulation.query.world import World, machine_of
from tests.simulation.rules import broken, no_thread_ends_by_an_error
from tests.simulation.scheduler import Process

Invariant = Callable[[World], Iterator[str]]

_RETENTION = RETENTION_HOURS * 3600.0
_BETWEEN = 5.0
"""Seconds between two subscriptions of a consumer to a shard, by the service's rules."""
_FRESH = _RETENTION - 6 * 3600 - 600
"""Seconds without a plan after which a position may seem expired: offsets are stored again after
six hours of silence, and leave a minute for clocks that are apart."""


def queries_fail_for_a_reason(world: World) -> Iterator[str]:
    """A query fails only by data loss, failed calls, or another beginning of its first batch."""
    has_trouble = any(isinstance(event, Trouble) for _, event in world.history.events)
    for failure in world.failures:
        error = failure.error
        cause = error.__cause__ if isinstance(error, JobFailedError) else error
        if type(cause).__name__ == "TaskFailedError" or isinstance(cause, DataLossError):
            continue
        if "is in the future" in str(cause):
            continue
        if isinstance(cause, OffsetError) and _begins_elsewhere(world, failure.at):
            continue
        if not has_trouble:
            yield f"at {failure.at:.3f} the query failed without a reason: {cause!r}"


def _begins_elsewhere(world: World, at: float) -> bool:
    """True if the run at that time asks for LATEST although its first batch began elsewhere."""
    run = max((run for run in world.runs if run.began <= at), key=lambda run: run.number)
    is_latest = run.options["initialPosition"] == "latest"
    return is_latest and world.first_initial_position not in {None, "latest"}


def everything_arrives(world: World) -> Iterator[str]:
    """Each row that is wanted is in the sink within bounded time of the end of all faults."""
    for row in missing(world)[:5]:
        yield f"{row.data!r} of {row.id} is not in the sink"


def everything_settles(world: World) -> Iterator[str]:
    if world.settled_after is None:
        yield f"{world.history.patience} s after the last fault the query is not settled"


def each_row_arrives_once(world: World) -> Iterator[str]:
    """The idempotent sink holds each row once, as it was put and as some task read it (P2)."""
    put = {row.id: row for row in put_rows(world)}
    seen: dict[object, int] = {}
    for batch, tasks in world.sink.batches.items():
        for row in itertools.chain.from_iterable(tasks):
            if row.id in seen:
                yield f"{row.data!r} is in batch {seen[row.id]} and in batch {batch}"
            seen[row.id] = batch
            if put.get(row.id) != row:
                yield f"{row} was put as {put.get(row.id)}"


def nothing_unwanted_arrives(world: World) -> Iterator[str]:
    """Nothing from before the starting position, or older than ``skipOlderThan`` says (P9)."""
    yield from itertools.islice(unwanted(world), 5)


def batches_are_the_same_each_time(world: World) -> Iterator[str]:
    """The same offsets give the same ranges, and each try of one the same rows in order (P1).

    But for what retention has removed in between.
    """
    for batch, (first, *others) in world.partitions.items():
        for other in others:
            if other != first:
                yield f"batch {batch} was planned as {first}, and as {other}"
    tries: defaultdict[tuple[int, str, str], list[Try]] = defaultdict(list)
    for each in world.tries:
        tries[each.batch, each.stream, each.shard_range.shard_id].append(each)
    for (batch, _, shard), same in tries.items():
        whole = next((each for each in same if each.is_whole), None)
        if whole is None:
            continue
        for each in same:
            ended = world.scheduler.now if each.ended is None else each.ended
            by_ms = world.epoch_ms(max(ended, whole.ended or 0.0) + 1)
            expected, found = (
                [row for row in one.rows if world.streams.life_of(row.id).gone_ms(row) > by_ms]
                for one in (whole, each)
            )
            if found != (expected if each.is_whole else expected[: len(found)]):
                yield (
                    f"a try of {shard} in batch {batch} at {each.began:.3f} read {_names(found)}, "
                    f"another at {whole.began:.3f} {_names(expected)}"
                )


def shards_are_read_in_order(world: World) -> Iterator[str]:
    """Batches of a shard follow each other, and their rows, as the shard has them (P2)."""
    last: dict[tuple[str, str], tuple[tuple[int, str], int]] = {}
    for batch in sorted(world.sink.batches):
        for row in itertools.chain.from_iterable(world.sink.batches[batch]):
            shard = row.id.stream, row.id.shard
            place = sequence_order(row.id.sequence_number), row.id.sub_sequence_number
            if shard in last and not last[shard] < place:
                yield f"{row.data!r} in batch {batch} comes behind what follows it in {shard}"
            last[shard] = place


def batches_advance_together(world: World) -> Iterator[str]:
    """No row arrived before the newest row of an earlier batch, but for maxShardDrift (P10).

    Nor for a stream that is added to the query later, and for positions that a loss has moved.
    """
    if has_skew(world) or world.losses:
        return
    drift_ms = 1000 * max(run.asked.max_shard_drift for run in world.runs)
    begun = json.loads(world.checkpoint.offsets.get(0, "{}"))
    newest: Row | None = None
    for batch in sorted(world.sink.batches):
        rows = list(itertools.chain.from_iterable(world.sink.batches[batch]))
        for row in rows:
            if newest is None or row.id.stream not in begun:
                continue
            if row.arrival_ms < newest.arrival_ms - drift_ms:
                yield (
                    f"{row.data!r} of {row.id.shard} in batch {batch} arrived "
                    f"{newest.arrival_ms - row.arrival_ms} ms before {newest.data!r} of "
                    f"{newest.id.shard}, which is in an earlier batch"
                )
        both = rows if newest is None else [*rows, newest]
        newest = max(both, key=lambda row: row.arrival_ms, default=None)


def parents_come_first(world: World) -> Iterator[str]:
    """A key's rows are in the order of the puts; those of a shard in a later batch than its
    parents' (P3)."""
    order = {row.id: place for place, row in enumerate(put_rows(world))}
    last: dict[tuple[str, str], Row] = {}
    batches: defaultdict[tuple[Life, str], set[int]] = defaultdict(set)
    for batch in sorted(world.sink.batches):
        for row in itertools.chain.from_iterable(world.sink.batches[batch]):
            key = row.id.stream, row.key
            before = last.get(key)
            if before is not None and order.get(before.id, 0) > order.get(row.id, 0):
                yield f"{row.data!r} in batch {batch} comes after {before.data!r}"
            last[key] = row
            batches[world.streams.life_of(row.id), row.id.shard].add(batch)
    for life in itertools.chain.from_iterable(world.streams.lives.values()):
        for shard, parents in life.parents.items():
            for parent in parents:
                first = min(batches.get((life, shard), {1 << 60}))
                if max(batches.get((life, parent), {-1})) >= first:
                    yield f"batch {first} has rows of {shard} and not all before of {parent}"


def offsets_are_readable(world: World) -> Iterator[str]:
    """Offsets are JSON of positions, and no larger than the number of shards requires (P4)."""
    for batch, text in world.checkpoint.offsets.items():
        offset = json.loads(text)
        read = from_json(STREAMS, offset)
        for stream, positions in read.items():
            shards = len(world.streams.all_shards(stream))
            is_first = len(world.streams.lives[stream]) == 1
            if len(positions) > shards + 1 and is_first and world.scheduler.now < _RETENTION:
                yield f"the offset of batch {batch} lists {len(positions)} of {shards} shards"
    batches = sorted(world.checkpoint.offsets)
    if batches != list(range(len(batches))):
        yield f"the offset log has the batches {batches}"
    for stream, positions in read.items() if batches else ():
        stale = [shard for shard, at in offset[stream].items() if at == "SHARD_END"]
        if world.settled_after is not None and len(stale) > len(positions) // 2 + 2:
            yield f"in the end the offset lists the finished shards {stale}"


def idle_streams_make_no_batches(world: World) -> Iterator[str]:
    """A batch without a row has another reason: a beginning, a jump, a loss, hours passed (P5)."""
    empty = [batch for batch, tasks in world.sink.batches.items() if not any(tasks)]
    # What retention has removed since a batch was planned was in it.
    gone = [
        batch
        for batch in empty
        if any(loss.at >= _planned_at(world, batch) for loss in world.losses)
    ]
    reasons = len(STREAMS) * 2
    reasons += sum(run.asked.skip_older_than is not None for run in world.runs) * 2
    reasons += 2 * len(world.losses)
    reasons += int(world.scheduler.now / (5 * 3600))
    if len(empty) - len(gone) > reasons:
        yield f"the batches {empty} have no rows, and {reasons} of them have a reason"


def _planned_at(world: World, batch: int) -> float:
    return next((plan.began for plan in world.plans if plan.batch == batch), 0.0)


def limits_hold(world: World) -> Iterator[str]:
    """A batch has no more rows than is allowed, but for a first record of more rows (P6)."""
    for plan in world.plans:
        if plan.batch is None or world.history.trigger.kind == "once":
            continue
        tasks = world.sink.batches.get(plan.batch)
        limit = plan.run.asked.allowance.rows
        if tasks is None or limit == float("inf"):
            continue
        rows = sum(map(len, tasks))
        if rows > max(1.1 * limit, LARGEST_AGGREGATE):
            yield f"batch {plan.batch} has {rows} rows in {len(tasks)} tasks, allowed are {limit}"


def loss_is_reported(world: World) -> Iterator[str]:
    """A loss is reported only if records are gone, or if nothing could show it (P8).

    That nothing is gone without a word is `everything_arrives`.
    """
    there = delivered(world)
    for loss in world.losses:
        at = loss.at
        if any(
            row.id not in there
            and row.id.stream == loss.stream
            and world.streams.life_of(row.id).gone_ms(row) <= world.epoch_ms(at + 1.0)
            for row in put_rows(world)
        ):
            continue
        plans = [0.0, *(plan.ended for plan in world.plans if plan.ended is not None), at]
        plans = sorted(each for each in plans if each <= at)
        # Of a stream that is deleted nobody can tell what it had.
        is_first = world.epoch_ms(at) <= world.streams.lives[loss.stream][0].deleted_ms
        if is_first and max(b - a for a, b in itertools.pairwise(plans)) < _FRESH:
            yield f"at {at:.3f} a loss was reported, but nothing was gone: {loss.text}"


def calls_stay_within_budgets(world: World) -> Iterator[str]:
    """Calls on a shard in any ten seconds, listings of a stream, and calls of one plan (P7)."""
    times: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for call in world.kinesis.calls:
        if call.operation in {"GetRecords", "GetShardIterator"}:
            times[call.operation, f"{call.stream}/{call.shard}"].append(call.time_ms)
        if call.operation == "ListShards" and call.error is not None:
            yield f"at {call.time_ms} ListShards was refused: {call.error}"
    for (operation, shard), instants in times.items():
        for place, instant in enumerate(instants):
            count = bisect_right(instants, instant + 10_000) - place
            if count <= 56:
                continue
            began = [world.epoch_ms(run.began) for run in world.runs]
            if count > 56 + 20 * sum(instant - 1 <= at <= instant + 10_000 for at in began):
                yield f"{operation} of {shard} was called {count} times in the ten s from {instant}"
                break
    for run in world.runs:
        ended = max((plan.ended or plan.began for plan in run.plans), default=run.began)
        listed = world.calls.get((run.process.name, "ListShards"), 0)
        trouble = sum(note.text.startswith("ListShards meets") for note in world.notes)
        most = len(STREAMS) * (4 + (ended - run.began) / 5.0) + trouble
        if listed > most:
            yield f"{run.process} listed shards {listed} times in {ended - run.began:.0f} s"


def available_now_ends_where_it_should(world: World) -> Iterator[str]:
    """An available-now run reads everything that was there at its start, and nothing later (P6)."""
    for run in world.runs:
        if run.prepared is None or run.ended is None or has_skew(world) or has_lag(world):
            continue
        began, until = (world.epoch_ms(at) for at in run.prepared)
        names = run.options["streamName"].split(",")
        in_time = {
            row.id
            for batch, tasks in world.sink.batches.items()
            if world.sink.written_at[batch] <= run.ended
            for task in tasks
            for row in task
        }
        wanted = delivered(world) | {row.id for row in missing(world)}
        for row in put_rows(world):
            was_there = row.arrival_ms < began - 1000 and row.id.stream in names
            if was_there and row.id in wanted - in_time:
                yield f"{row.data!r} was there at {began}, and the run left it to another"
                break
        planned = {plan.batch for plan in run.plans}
        for batch in planned & set(world.sink.batches):
            for row in itertools.chain.from_iterable(world.sink.batches[batch or 0]):
                if row.arrival_ms > until + 1:
                    yield f"{row.data!r} came after {until}, and is in batch {batch}"


def subscriptions_end_with_their_tasks(world: World) -> Iterator[str]:
    """Each subscription is closed with its task: an open one costs money."""
    ends: defaultdict[tuple[Process, str], list[tuple[float, float]]] = defaultdict(list)
    for each in world.tries:
        if each.ended is not None:
            ends[each.process, each.shard_range.shard_id].append((each.began, each.ended))
    for one in world.subscriptions.connections:
        if one.opened is None or one.process.is_killed:
            continue  # nobody has heard of it, or nobody is there any more
        tasks = ends[one.process, one.shard_id]
        ended = max((end for began, end in tasks if began <= one.opened <= end), default=None)
        if ended is not None and (one.closed is None or one.closed > ended):
            yield f"{one.process} has ended a task, and not its subscription to {one.shard_id}"


def machines_take_turns(world: World) -> Iterator[str]:
    """A machine asks for a shard once in five seconds, or one after it was refused."""
    asked: defaultdict[tuple[str, str, str], list[tuple[float, bool]]] = defaultdict(list)
    for call in world.subscriptions.calls:
        is_refusal = call.error == "ResourceInUseException"
        shard = machine_of(call.process), call.consumer_arn, call.shard_id
        asked[shard].append((call.at, is_refusal))
    for (machine, _, shard_id), calls in asked.items():
        for (before, was_refused), (at, _) in itertools.pairwise(sorted(calls)):
            if at - before < (1.0 if was_refused else _BETWEEN):
                yield f"machine {machine} asked for {shard_id} at {before:.3f} and {at:.3f}"


def _names(rows: list[Row]) -> str:
    return ", ".join(row.data.decode(errors="replace") for row in rows)


INVARIANTS: tuple[Invariant, ...] = (
    no_thread_ends_by_an_error,
    queries_fail_for_a_reason,
    each_row_arrives_once,
    nothing_unwanted_arrives,
    batches_are_the_same_each_time,
    shards_are_read_in_order,
    batches_advance_together,
    parents_come_first,
    offsets_are_readable,
    idle_streams_make_no_batches,
    limits_hold,
    loss_is_reported,
    calls_stay_within_budgets,
    subscriptions_end_with_their_tasks,
    machines_take_turns,
    available_now_ends_where_it_should,
    everything_arrives,
    everything_settles,
)


def check(world: World) -> list[str]:
    """All that is wrong with a world, by the invariants' names."""
    return list(broken(INVARIANTS, world))
