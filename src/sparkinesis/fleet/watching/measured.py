"""The metrics of a fleet: its workers that are wanted, run and wait, and its restarts. Pure.

Each worker's own metrics are measured where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparkinesis.fleet.roster import Action, Roster, SendStart, Submit
from sparkinesis.metrics.catalogue import FLEET_RUNNING, FLEET_WAITING, FLEET_WANTED
from sparkinesis.metrics.metrics import Sample
from sparkinesis.status import FleetStatus, WorkerState


def gauges_of(status: FleetStatus) -> list[Sample]:
    """Return the gauges of a fleet.

    A worker that was told to start waits until it reports; one that leaves is not counted.
    """
    states = [worker.state for worker in status.workers]
    waiting = status.waiting + states.count(WorkerState.STARTING)
    return [
        Sample(FLEET_WANTED, (), status.wanted),
        Sample(FLEET_RUNNING, (), states.count(WorkerState.RUNNING)),
        Sample(FLEET_WAITING, (), waiting),
    ]


@dataclass(frozen=True, slots=True)
class Restarts:
    """What has begun in each slot, so that whatever begins there again can be counted.

    A slot gets another job when its job has ended, and Spark may run the task of a job again.
    """

    submitted: frozenset[int] = frozenset()
    """The slots that have had a job."""
    begun: Mapping[int, tuple[int, str]] = field(default_factory=lambda: MappingProxyType({}))
    """The job and the worker that began last in a slot."""

    def after(self, roster: Roster, actions: Iterable[Action]) -> tuple[Restarts, int]:
        """Return what has begun after these actions, and the number of those that began again.

        roster: as it is after the actions. A slot that is removed is forgotten.
        """
        submitted = set(self.submitted & roster.slots.keys())
        begun = {slot: last for slot, last in self.begun.items() if slot in submitted}
        again = 0
        for action in actions:
            if isinstance(action, Submit):
                again += len(submitted.intersection(action.slots))
                submitted.update(action.slots)
            elif isinstance(action, SendStart):
                member = roster.members[action.worker_id]
                job, worker_id = begun.get(member.slot, (None, None))
                # The first worker of another job came with that job. A start may be said twice.
                again += job == member.job and worker_id != member.worker_id
                begun[member.slot] = member.job, member.worker_id
        return Restarts(frozenset(submitted), begun), again
