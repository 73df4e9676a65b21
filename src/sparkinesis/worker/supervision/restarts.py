"""The restarts of a fleet: whatever begins in a slot where something had begun. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkinesis.worker.supervision.reconciling import Action, SendStart, Submit
from sparkinesis.worker.supervision.roster import Roster


@dataclass(frozen=True, slots=True)
class Restarts:
    """What has begun in each slot, so that whatever begins there again can be counted.

    A slot gets another job when its job has ended, and Spark may run the task of a job again.
    """

    submitted: frozenset[int] = frozenset()
    """The slots that have had a job."""
    begun: Mapping[int, tuple[int, str]] = field(default_factory=dict)
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
