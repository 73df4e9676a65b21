"""What is said of a fleet's workers and jobs, in its log and its status. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.fleet.channel.messages import Ended, Hello
from sparkinesis.fleet.reports import WorkerReports
from sparkinesis.fleet.roster import Slot

_SHARDS = 5
"""Named at most."""


def joined(hello: Hello) -> str:
    return f"worker {hello.worker_id} of slot {hello.slot} has joined from {hello.host}"


def dead_letters_stay_there(path: str) -> str:
    """Of a directory on the disks of the machines that executors run on."""
    return (
        f"The dead-letter directory {path} is a local one: each executor writes to its own "
        "machine, and what it wrote goes with the machine. Unless all machines mount it, give "
        "DeadLetterDirectory a URI such as s3://bucket/dead-letters, or use DeadLetterStream"
    )


def decommissioned(hello: Hello) -> str:
    return (
        f"The executor of worker {hello.worker_id} on {hello.host} is being decommissioned: the "
        "worker moves"
    )


def waiting(count: int, wanted: int) -> str:
    return (
        f"{count} of {wanted} workers still wait for Spark to run their tasks: each needs a free "
        "core (spark.task.cpus) for as long as the fleet lives"
    )


def lost(reported: WorkerReports) -> str:
    what = "no shards"
    if reported.shards:
        what = (
            ", ".join(shard.shard_id for shard in reported.shards[:_SHARDS])
            + (" and more" if len(reported.shards) > _SHARDS else "")
            + ": other workers go on with them once its leases are released or have expired"
        )
    hello = reported.hello
    return f"Lost worker {hello.worker_id} on {hello.host}, which, when last heard, had {what}"


def ended(worker_id: str, message: Ended) -> str | None:
    """None: as it should."""
    if message.error is not None:
        return f"Worker {worker_id} has ended: {message.error}"
    if not message.was_graceful:
        return (
            f"Worker {worker_id} was out of time when it shut down: what its record processors had "
            "not finished is processed again"
        )
    return None


def submitted_again(slots: Sequence[Slot], error: str | None, now: float) -> str:
    """Of slots whose job has ended."""
    numbers = ", ".join(str(slot.number) for slot in slots)
    pause = min(slot.retry_at for slot in slots) - now
    return (
        f"The job of slot{'s' if len(slots) > 1 else ''} {numbers} has ended and is submitted "
        f"again in {pause:.1f} s: {error or 'they have left'}"
    )
