"""What becomes of worker processes, decided without any."""

from __future__ import annotations

import signal

import pytest

from sparkinesis.status import FleetState, WorkerState
from sparkinesis.worker.crew.messages import Ended, Introduction, Leaving, Raised
from sparkinesis.worker.crew.processes.roster import (
    KILL_AFTER,
    LONGEST_BACKOFF,
    SETTLED,
    UNGUARDED,
    Kill,
    Roster,
    StartProcess,
)

WITHIN = 30.0


def introduction(slot: int) -> Introduction:
    return Introduction(worker_id=f"w-{slot}", slot=slot, host="here", pid=100 + slot)


def running(count: int = 2, now: float = 0.0) -> Roster:
    """A roster whose processes all run."""
    roster = Roster.of(count)
    for slot in range(1, count + 1):
        roster = roster.started(slot, now).introduced(slot, introduction(slot), now)
        roster = roster.reported(slot, now, is_running=True)
    return roster


def died(roster: Roster, code: int | None = -signal.SIGKILL, now: float = 1.0) -> Roster:
    return roster.died(1, code, now, WITHIN, 1.0)


def test_each_wanted_process_is_started_once() -> None:
    roster = Roster.of(2)
    assert roster.actions(0.0) == [StartProcess(1), StartProcess(2)]
    assert (roster.wanted, roster.waiting, roster.present()) == (2, 2, [])
    roster = roster.started(1, 0.0)
    assert roster.actions(0.0) == [StartProcess(2)]
    assert running().actions(9.0) == []
    assert running().waiting == 0


def test_a_process_that_was_killed_is_replaced_and_the_note_says_so() -> None:
    roster = died(running())
    assert roster.actions(1.9) == []
    assert roster.next_action_at() == 2.0
    assert roster.actions(2.0) == [StartProcess(1)]
    (note,) = roster.notes
    assert note.startswith("Worker w-1 (process 1, pid 101) was killed by SIGKILL (Linux does so")
    assert "Another process takes its place in 1.0 s" in note
    assert [one.worker_id for one in roster.present()] == ["w-2"]
    again = roster.noted().started(1, 2.0)
    assert (again.restarts, again.notes, again.slots[1].worker) == (1, (), None)


def test_the_waits_grow_while_a_process_dies_again_and_again() -> None:
    roster, now, waits = running(), 0.0, []
    for _ in range(8):
        roster = died(roster, now=now)
        waits.append(roster.next_action_at() - now)
        now = roster.next_action_at()
        roster = roster.started(1, now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_BACKOFF, LONGEST_BACKOFF]
    after_a_good_life = died(roster, now=now + SETTLED)
    assert after_a_good_life.next_action_at() == now + SETTLED + 1.0
    # Those that die together do not start together.
    assert running().died(1, 1, 0.0, WITHIN, 0.0).next_action_at() == 0.5


def test_a_process_that_cannot_be_started_is_tried_again() -> None:
    roster = Roster.of(1).not_started(1, "no memory", 5.0, 1.0)
    assert roster.state is FleetState.RUNNING
    assert (roster.actions(5.9), roster.actions(6.0)) == ([], [StartProcess(1)])
    assert roster.notes[0].startswith("Worker process 1 could not be started: no memory. Another")
    assert roster.not_started(1, "no memory", 6.0, 1.0).next_action_at() == 8.0


def test_an_error_that_each_worker_would_meet_ends_all() -> None:
    error = Raised(b"pickled", "no processor")
    roster = died(running().failed(1, error).ended(1, Ended(False, "no processor")), 1)
    assert roster.state is FleetState.SHUTTING_DOWN
    assert roster.fatal is not None
    assert (roster.fatal.raised, roster.error) == (error, "no processor")
    assert roster.actions(1.0) == []
    transient = died(running().ended(1, Ended(False, "throttled", is_transient=True)), 1)
    assert transient.state is FleetState.RUNNING
    assert transient.next_action_at() == 2.0, "a failure: not at once"
    assert "has ended with an error: throttled" in transient.notes[0]


@pytest.mark.parametrize(("code", "is_unguarded"), [(UNGUARDED, True), (1, False)])
def test_a_first_process_that_cannot_import_the_program_ends_all(
    code: int, *, is_unguarded: bool
) -> None:
    roster = died(Roster.of(2).started(1, 0.0), code)
    assert roster.fatal is not None
    assert roster.fatal.is_unguarded is is_unguarded
    later = died(running(), code)
    assert later.fatal is None, "the program could be imported before"


def test_all_have_the_time_of_the_shutdown_and_are_killed_then() -> None:
    roster = running().shut_down(10.0, WITHIN)
    assert roster.within(15.0) == WITHIN - 5.0
    assert roster.next_action_at() == 10.0 + WITHIN + KILL_AFTER
    assert roster.actions(roster.next_action_at() - 0.1) == []
    assert roster.actions(roster.next_action_at()) == [Kill(1), Kill(2)]
    assert roster.killed(1).actions(99.0) == [Kill(2)]
    at_once = roster.shut_down(11.0, 0.0)
    assert (at_once.within(11.0), at_once.next_action_at()) == (0.0, 11.0 + KILL_AFTER)
    assert at_once.shut_down(12.0, WITHIN).next_action_at() == 11.0 + KILL_AFTER, "the earliest"


def test_a_shutdown_is_over_when_the_last_process_has_ended() -> None:
    roster = running().shut_down(0.0, WITHIN).ended(1, Ended(True))
    assert roster.present()[0].state is WorkerState.LEAVING
    roster = died(roster, 0)
    assert (roster.is_over, roster.are_all_graceful, roster.notes) == (False, True, ())
    roster = roster.died(2, -signal.SIGKILL, 2.0, WITHIN, 0.0)
    assert (roster.is_over, roster.are_all_graceful) == (True, False)
    assert "Worker w-2 (process 2, pid 102) was killed by SIGKILL" in roster.notes[0]


def test_a_worker_that_leaves_is_replaced_unless_all_are_to_leave() -> None:
    leaving = running().left(1, Leaving("it received SIGTERM"), 0.0, WITHIN)
    assert leaving.state is FleetState.RUNNING
    assert leaving.present()[0].state is WorkerState.LEAVING
    replaced = died(leaving.ended(1, Ended(True)), 0)
    assert replaced.actions(1.0) == [StartProcess(1)], "at once: it has not failed"
    all_of_them = running().left(1, Leaving("a processor asks", is_for_all=True), 0.0, WITHIN)
    assert all_of_them.state is FleetState.SHUTTING_DOWN


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "has ended with exit code 3; its output on stderr may say why"),
        (0, "has ended without a word"),
        (-signal.SIGSEGV, "was killed by SIGSEGV."),
        (-200, "was killed by signal 200."),
    ],
)
def test_the_note_says_how_a_process_has_ended(code: int, text: str) -> None:
    assert text in died(running(), code).notes[0]
