"""The texts of a supervisor's notes, which are logged and are `FleetStatus.notes`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.errors import listed
from sparkinesis.status import ShardStatus
from sparkinesis.worker.supervision.control_messages import Ended, Hello
from sparkinesis.worker.supervision.gathered_reports import WorkerReports
from sparkinesis.worker.supervision.roster import Slot
from sparkinesis.worker.supervision.unread import ReportedStream

_IN_HAND = "the records that it had in hand are delivered again once their holds end"
"""What becomes of the records of a queue."""


def joined(hello: Hello) -> str:
    return f"worker {hello.worker_id} of slot {hello.slot} has joined from {hello.host}"


def local_dead_letters(path: str) -> str:
    """Return a warning about a dead-letter directory on the local disks of executors."""
    return (
        f"The dead-letter directory {path} is a local one: each executor writes to its own "
        "machine, and the files are lost with the machine. Unless all machines mount it, give "
        "DeadLetterDirectory a URI such as s3://bucket/dead-letters, or use DeadLetterStream"
    )


def decommissioned(hello: Hello) -> str:
    return (
        f"The executor of worker {hello.worker_id} on {hello.host} is being decommissioned: the "
        "worker moves to another one"
    )


def waiting(count: int, wanted: int) -> str:
    who = f"{count} of {wanted} workers" if count < wanted else f"No worker runs yet: all {wanted}"
    text = (
        f"{who} still wait for Spark to run their tasks. Each worker needs a free core "
        "(spark.task.cpus) for as long as the fleet runs: add cores or executors, end other jobs, "
        "or scale the fleet down"
    )
    if count < wanted:
        return text
    # A worker that cannot connect looks like one that Spark has not started.
    return (
        f"{text}. If Spark runs the tasks already, its executors cannot reach this program: set "
        "host, bind and port of FleetOptions"
    )


def lost(reported: WorkerReports, now: float, *, has_shards: bool = True) -> str:
    hello, report = reported.hello, reported.report
    if not has_shards:
        what = f"counted {report.records:,} records; {_IN_HAND}"
    elif not report.shards:
        what = "listed no shards"
    else:
        what = (
            f"listed {listed(map(_shard, report.shards))}: other workers resume them once its "
            "leases are released or have expired"
        )
    return (
        f"Lost worker {hello.worker_id} on {hello.host}; its last report, "
        f"{now - reported.at:.1f} s ago, {what}. Records that it processed after that report are "
        "not counted"
    )


def ended(worker_id: str, message: Ended) -> str | None:
    """Describe the end of a worker; None for a regular one."""
    if message.error is not None:
        return f"Worker {worker_id} ended with an error: {message.error}"
    if not message.was_graceful:
        return (
            f"Worker {worker_id} did not shut down in time: records that it had not "
            "finished are processed again"
        )
    return None


def submitted_again(slots: Sequence[Slot], error: str | None, now: float) -> str:
    """Describe the resubmission of slots whose job has ended."""
    numbers = ", ".join(str(slot.number) for slot in slots)
    pause = min(slot.retry_at for slot in slots) - now
    return (
        f"The job of slot{'s' if len(slots) > 1 else ''} {numbers} has ended and is submitted "
        f"again in {pause:.1f} s: {error or 'its workers have shut down'}"
    )


def process_ended(error: str, again: Sequence[Slot], now: float, *, has_shards: bool = True) -> str:
    """Describe the end of a worker process. again: its slot, if another one takes its place."""
    if not again:
        return error
    pause = again[0].retry_at - now
    left = "its shards are read on from their checkpoints" if has_shards else _IN_HAND
    return (
        f"{error}. Another process takes its place {f'in {pause:.1f} s' if pause else 'now'}; "
        f"{left}"
    )


def unreadable(worker_id: str, streams: Sequence[ReportedStream]) -> str:
    """Describe streams that have become unreadable."""
    why = streams[0].problem
    if len(streams) > 1:
        why = f"{_names(streams)}. The reason for the first: {why}"
        what = f"{len(streams)} streams"
    else:
        what = f"stream {streams[0].stream}"
    return (
        f"Worker {worker_id} cannot read {what} now, and tries again; the other streams are not "
        f"affected: {why}"
    )


def readable(streams: Sequence[ReportedStream]) -> str:
    """Describe streams that all workers can read again."""
    return f"All workers can read stream{'s' if len(streams) > 1 else ''} {_names(streams)} now"


def _names(streams: Sequence[ReportedStream]) -> str:
    return listed(one.stream for one in streams)


def _shard(shard: ShardStatus) -> str:
    if shard.lease in {"", shard.shard_id}:
        return shard.shard_id
    return f"{shard.shard_id} of {shard.stream}"
