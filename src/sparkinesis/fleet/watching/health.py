"""The health of a fleet, by what its workers have reported. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sparkinesis.status import FleetState, FleetStatus, WorkerState, WorkerStatus

_HERE = {WorkerState.RUNNING, WorkerState.LEAVING}


def why_not_live(workers: Iterable[WorkerStatus]) -> list[str]:
    """Return which loops of which workers stand still or have died.

    A worker that is lost says nothing: Spark runs its task again.
    """
    return [
        f"worker {worker.worker_id}: {why}"
        for worker in workers
        if worker.state in _HERE
        for why in worker.not_live
    ]


def why_not_ready(status: FleetStatus) -> list[str]:
    """Return why no worker of the fleet sees the lease table; nothing if one does."""
    if status.state is not FleetState.RUNNING:
        return [f"the fleet is {status.state.value}"]
    running = [one for one in status.workers if one.state is WorkerState.RUNNING]
    if not running:
        return ["no worker runs"]
    if not all(worker.not_ready for worker in running):
        return []
    return [f"worker {one.worker_id}: {why}" for one in running for why in one.not_ready]
