"""Invariants of what record processors are given: which records, and which calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sparkinesis.lease.lease import Lease, decode_lease
from tests.simulation.dynamodb import Write
from tests.simulation.journal import Entry, Place
from tests.simulation.lease_rules import acquisitions, asleep, signs_of_life
from tests.simulation.owed_records import owed
from tests.simulation.replay import Replay
from tests.simulation.world import World


def everything_is_processed(world: World) -> Iterator[str]:
    """Every owed record is processed at least once within bounded time after all faults."""
    yield from owed(world)


def every_shard_is_read(world: World) -> Iterator[str]:
    """No lease is orphaned: each open shard is read, by one live worker, which the table names.

    The specification's `OwnedAgain`.
    """
    if world.settled_after is None:
        patience = world.history.patience
        yield f"{patience} s after the last fault the world is not settled: {world.unsettled}"


def workers_leave(world: World) -> Iterator[str]:
    """A graceful shutdown ends, and leaves neither threads nor leases.

    A finished lease may name its last owner, or who asked for it: it is nobody's to read.
    """
    if world.left_after is None:
        for process in world.fleet.live_processes():
            threads = sorted(task.name for task in process.tasks)
            yield f"{process} did not end; its threads are {threads}"
    left = {name for process, name in world.fleet.worker_ids.items() if not process.is_killed}
    for key, row in world.table.lease_rows.items():
        lease = decode_lease(row)
        if lease is None or lease.is_finished:
            continue
        if {lease.owner, lease.checkpoint_owner} & left:
            yield f"{key} was left with owner {lease.owner}, from {lease.checkpoint_owner}"


def calls_never_overlap(world: World) -> Iterator[str]:
    """But for those of coroutines that a forced shutdown cancels, and does not wait for."""
    for entry in world.journal.entries:
        is_excused = world.history.is_async and entry.process in world.fleet.ungraceful
        if entry.what == "overlap" and not is_excused:
            yield f"at {entry.at:.3f} {entry.about} was called while another call was running"


_CALLS = {"initialize", "records", "shutdown_requested", "shard_ended", "lease_lost"}
_MAY_FOLLOW = {
    None: {"initialize"},
    "initialize": {"initialize", *(_CALLS - {"initialize"})},
    "records": _CALLS - {"initialize"},
    "shutdown_requested": {"lease_lost"},
    "shard_ended": {"shard_ended", "lease_lost"},
    "lease_lost": set[str](),
}


def calls_follow_the_life_cycle(world: World) -> Iterator[str]:
    """One ``initialize``, then records, then one final call; a call that raised is repeated.

    ``lease_lost`` follows ``shard_ended`` if its automatic checkpoint came too late, or without an
    answer.
    """
    is_automatic = world.history.is_automatic
    ends = [
        (write.at, write.by.name, write.key)
        for write, before, after in world.leases()
        if after is not None and after.is_finished and not (before and before.is_finished)
        if write.by is not None and not _is_unanswered(world, write.by.name, write.at)
    ]
    last: dict[int, str] = {}
    initialized: dict[int, float] = {}
    ended: set[int] = set()
    for entry in world.journal.entries:
        reader = entry.reader
        if entry.what == "initialized":
            initialized[reader] = entry.at
        elif entry.what == "raised" and entry.about[0] == "shard_ended":
            ended.discard(reader)
        if entry.what not in _CALLS:
            continue
        before = last.get(reader)
        if is_automatic and (entry.what, before) == ("lease_lost", "shard_ended"):
            here = (entry.process, entry.shard)
            # The shard may have ended here once before, and have been reset since.
            began = initialized.get(reader, entry.at)
            if not any(began <= at <= entry.at and (by, key) == here for at, by, key in ends):
                ended.discard(reader)
        is_early = entry.what != "initialize" and reader not in initialized
        is_late = reader in ended or (entry.what == "initialize" and reader in initialized)
        if is_early or is_late or entry.what not in _MAY_FOLLOW[before]:
            yield f"at {entry.at:.3f} {entry.process} called {entry.what} after {before}"
        last[reader] = entry.what
        if entry.what in {"shard_ended", "lease_lost"}:
            ended.add(reader)


def readers_get_a_final_call(world: World) -> Iterator[str]:
    """Each initialized processor gets a final call, unless its process was killed or forced."""
    killed = {process.name for process in world.fleet.worker_ids if process.is_killed}
    killed |= {process.name for process in world.fleet.live_processes()}
    waiting: dict[int, Entry] = {}
    for entry in world.journal.entries:
        if entry.what == "initialized":
            waiting[entry.reader] = entry
        elif entry.what in {"lease_lost", "shard_ended"}:
            waiting.pop(entry.reader, None)
    for entry in waiting.values():
        if entry.process not in killed | world.fleet.ungraceful:
            yield f"{entry.process} made no final call to the processor of {entry.shard}"


_AT_ONCE = 0.1
"""Seconds in which a process that resumes looks at all of its leases."""


def _has_just_resumed(world: World, process: str, at: float) -> bool:
    return any(
        name == process and when <= at <= when + _AT_ONCE for name, when in world.fleet.resumed
    )


def shutdown_is_requested_before_release(world: World) -> Iterator[str]:
    """A worker that releases a lease has given the record processor a last chance to checkpoint.

    Unless the processor failed or hung for too long, or the shutdown was forced. Or the lease's
    time had run out, by the process' own clock: then it is lost, even if a write that was on its
    way lands behind that, for which there is something to release. That may be before the
    processor is initialized: who has the lease may wait for parents, or for the service's clock.
    A renewal without an answer does not count, nor one whose answer is late: its process does not
    know that it has landed. Nor does a process that has just woken up: it was told so meanwhile.
    """
    if world.history.on_error == "stop" or world.options.give_up_after_limit:
        return
    shown, acquired = signs_of_life(world), acquisitions(world)
    lost: dict[tuple[str, str], list[float]] = {}
    for entry in world.journal.entries:
        if entry.what == "lease_lost":
            lost.setdefault((entry.process, entry.shard), []).append(entry.at)
    ids = {process.name: worker_id for process, worker_id in world.fleet.worker_ids.items()}
    for entry, asked, let_go in _let_go(world):
        if let_go is None or asked or entry.process in world.fleet.ungraceful:
            continue
        ended = [at for at in lost.get((entry.process, entry.shard), []) if at <= let_go]
        if ended and _has_just_resumed(world, entry.process, ended[-1]):
            continue
        # Whose lease was taken again after it was lost may have been its owner all the time.
        began = acquired.get((ids[entry.process], entry.shard), [])
        began = began + lost.get((entry.process, entry.shard), [])
        since = max((at for at in began if at < entry.at), default=entry.at)
        known = [since] + [
            at
            for at in shown[entry.process, entry.shard]
            if since < at <= let_go
            and (at == let_go or not _is_unanswered(world, entry.process, at))
        ]
        spans = (b - a - asleep(world, entry.process, a, b) for a, b in pairwise(known))
        if not any(span >= world.options.failover_time for span in spans):
            yield (
                f"at {let_go:.3f} {entry.process} released {entry.shard}, and had not called "
                "shutdown_requested"
            )


def _is_unanswered(world: World, process: str, at: float) -> bool:
    """True if the write at that time may come from a call whose answer was lost."""
    return any(sent <= at <= arrives for sent, arrives in world.unanswered.get(process, ()))


def records_given_up_were_tried_alone(world: World) -> Iterator[str]:
    """Each record in the dead letters has failed alone before."""
    tried: set[tuple[str, str, Place]] = set()
    for entry in world.journal.entries:
        here = entry.process, entry.shard
        if entry.what == "raised" and entry.about[0] == "records" and len(entry.about[2]) == 1:
            tried.add((*here, *entry.about[2]))
        elif entry.what == "dead letter" and (*here, entry.about) not in tried:
            yield (
                f"at {entry.at:.3f} {entry.process} gave up {entry.about} of {entry.shard}, "
                "which was not tried alone"
            )


def stopped_shards_are_left_alone(world: World) -> Iterator[str]:
    """A worker does not read a shard again that ``Stop`` released.

    Who comes back from a pause may have lost the lease by a handoff that was over long before. Who
    deletes a lease asks for its shard anew, from everybody, and so does another process of the same
    id that takes the lease: it removes the note that the id has stopped the shard.
    """
    if world.history.on_error != "stop" or world.options.give_up_after_limit:
        return
    stopped = {
        (entry.process, entry.shard): let_go
        for entry, asked, let_go in _let_go(world)
        if let_go is not None and not asked and entry.process not in world.fleet.ungraceful
        if not _has_just_resumed(world, entry.process, let_go)
    }
    failed = {entry.process for entry in world.journal.entries if entry.what == "worker failed"}
    ids = {process.name: worker_id for process, worker_id in world.fleet.worker_ids.items()}
    deleted = [(write.key, write.at) for write in world.table.writes if write.after is None]
    taken = [
        (write.key, write.at, write.by.name, after.actual_owner)
        for write, before, after in _without_late_handoffs(world)
        if write.by is not None and after is not None
        if before is None or before.actual_owner != after.actual_owner
    ]
    for entry in world.journal.entries:
        if entry.what == "initialize" and entry.process not in failed:
            since = stopped.get((entry.process, entry.shard))
            if since is None or since >= entry.at:
                continue
            own = ids[entry.process]
            by_twins = (
                (key, at) for key, at, by, owner in taken if owner == own and by != entry.process
            )
            if not any(
                key == entry.shard and since < at < entry.at for key, at in (*deleted, *by_twins)
            ):
                yield f"at {entry.at:.3f} {entry.process} began with {entry.shard} again"


def _let_go(world: World) -> Iterator[tuple[Entry, bool, float | None]]:
    """Yields each ``lease_lost``: its entry, if shutdown was requested, time of the release."""
    releases: dict[tuple[str, str], list[float]] = {}
    takes: dict[tuple[str, str], list[float]] = {}
    for write, before, after in _without_late_handoffs(world):
        if before is None or after is None or write.by not in world.fleet.worker_ids:
            continue
        name = world.fleet.worker_ids[write.by]
        if before.actual_owner == name != after.actual_owner:
            releases.setdefault((write.by.name, write.key), []).append(write.at)
        elif name == after.actual_owner and before.fencing_token != after.fencing_token:
            takes.setdefault((write.by.name, write.key), []).append(write.at)
    begun: dict[int, Entry] = {}
    asked: set[int] = set()
    ended: set[int] = set()
    found: list[tuple[Entry, Entry]] = []
    beginnings: dict[tuple[str, str], list[float]] = {}
    for entry in world.journal.entries:
        if entry.what == "initialized":
            begun[entry.reader] = entry
            beginnings.setdefault((entry.process, entry.shard), []).append(entry.at)
        elif entry.what == "shutdown_requested":
            asked.add(entry.reader)
        elif entry.what == "shard_ended":
            ended.add(entry.reader)
        elif entry.what == "lease_lost" and entry.reader in begun and entry.reader not in ended:
            found.append((begun[entry.reader], entry))
    for first, last in found:
        times = releases.get((first.process, first.shard), [])
        again = [at for at in beginnings[first.process, first.shard] if at > first.at]
        # Who takes the lease once more may release it before its processor begins.
        again += [at for at in takes.get((first.process, first.shard), []) if at > last.at]
        # A release that was sent arrives a little later.
        until = min([last.at + 1.0, *again])
        mine = [at for at in times if first.at <= at <= until]
        yield first, first.reader in asked, mine[0] if mine else None


def _without_late_handoffs(world: World) -> Iterator[tuple[Write, Lease | None, Lease | None]]:
    """Yields the writes to leases but for those that end a handoff which is late.

    A leader also takes its own leases from itself then, and that is no release.
    """
    requested: dict[str, float] = {}
    late = world.options.handoff_timeout + 2 * world.options.failover_time
    for write, before, after in world.leases():
        if before is not None and before.checkpoint_owner is None:
            requested[write.key] = write.at
        elif world.history.has_leader and write.at - requested.get(write.key, write.at) > late:
            continue
        yield write, before, after


def readers_resume_where_they_should(world: World) -> Iterator[str]:
    """A record processor gets what follows its checkpoint, all of it, in order, once.

    Unless it raised: then again, from what it has checkpointed since, or else from what failed.
    What it is not given was given up as ``on_error`` says, was older than ``skip_older_than``, or
    had expired, which was told; what it is given is not older than it may be.
    """
    yield from Replay(world).wrong
