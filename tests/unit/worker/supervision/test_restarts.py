"""What counts as a restart: whatever begins in a slot where something had begun."""

from __future__ import annotations

import pytest

from sparkinesis.worker.supervision.restarts import Restarts
from sparkinesis.worker.supervision.roster import Roster
from tests.unit.worker.supervision.test_roster import (
    RULES,
    Fact,
    Play,
    breaks,
    ends,
    job_ends,
    joins,
    reports,
    scales,
)


class Counting(Play):
    """A roster whose restarts are counted."""

    restarts = Restarts()
    count = 0

    def then(self, fact: Fact | None = None):  # type: ignore[no-untyped-def]
        actions = super().then(fact)
        self.restarts, again = self.restarts.after(self.roster, actions)
        self.count += again
        return actions


def started(workers: int = 1) -> Counting:
    """A fleet whose workers "0", "1", ... run."""
    play = Counting(Roster(RULES).scaled(workers))
    play.then()
    for slot in range(workers):
        play.then(joins(str(slot), slot))
        play.then(reports(str(slot)))
    assert play.count == 0, "nothing has begun again"
    return play


def test_a_job_in_a_slot_that_had_one_is_a_restart_and_its_worker_is_not_another() -> None:
    play = started()
    play.then(breaks("0"))
    play.then(job_ends("lost"))
    assert play.count == 0, "it has not begun yet"
    play.after(RULES.backoff(0, 1))
    assert play.count == 1
    play.then(joins("new", job=2))
    play.then(reports("new"))
    assert play.count == 1


def test_a_task_that_spark_runs_again_is_a_restart() -> None:
    play = started()
    play.then(breaks("0"))
    play.then(joins("new", attempt=1))
    assert play.count == 1


def test_a_second_copy_of_a_task_is_none_until_it_takes_over() -> None:
    play = started()
    play.then(joins("copy", attempt=1))
    assert play.count == 0
    play.then(breaks("0"))
    assert play.count == 1


@pytest.mark.parametrize("is_running", [True, False], ids=["at work", "to be started again"])
def test_a_worker_that_comes_again_is_the_same_one(is_running: bool) -> None:
    play = started()
    play.then(breaks("0"))
    play.then(joins("0", is_running=is_running))
    assert play.count == 0


def test_more_workers_are_none_and_a_slot_that_was_removed_begins_anew() -> None:
    play = started()
    play.then(scales(2))
    play.then(joins("1", 1, 2))
    play.then(scales(1))
    play.then(ends("1"))
    play.then(job_ends(job=2))
    play.then(scales(2))
    assert play.roster.slots[1].job == 3
    assert play.count == 0
    assert play.restarts.submitted == {0, 1}


@pytest.mark.parametrize("slots", [1, 20])
def test_what_is_remembered_does_not_grow(slots: int) -> None:
    play = started(slots)
    for job in range(1, 30):
        for slot in range(slots):
            play.then(ends(f"{slot}" if job == 1 else f"{job}-{slot}", "out of luck"))
        play.then(job_ends("lost", job))
        play.after(RULES.longest_backoff + 1)
        for slot in range(slots):
            play.then(joins(f"{job + 1}-{slot}", slot, job + 1))
    assert play.count == 29 * slots
    assert len(play.restarts.submitted) == len(play.restarts.begun) == slots
