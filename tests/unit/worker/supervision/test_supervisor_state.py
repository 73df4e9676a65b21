"""What becomes of worker processes, decided without any. Tasks of Spark: see `test_roster`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkinesis.application import Application, SupervisedApplication
from sparkinesis.queue.application import QueueApplication, SupervisedQueue
from sparkinesis.status import FleetState, WorkerState
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Ended,
    Hello,
    Leaving,
    Report,
)
from sparkinesis.worker.supervision.gathered_reports import GatheredReports
from sparkinesis.worker.supervision.process_launcher import how_it_ended
from sparkinesis.worker.supervision.reconciling import (
    Action,
    Cancel,
    SendShutDown,
    SendStart,
    Submit,
)
from sparkinesis.worker.supervision.roster import ProcessRules, Roster, Rules
from sparkinesis.worker.supervision.supervisor_state import SupervisorState

WITHIN = 30.0
RULES = ProcessRules(1.0, 10.0, 1.0, 60.0)
SUPERVISED = SupervisedApplication.of(
    Application(name="app", stream="web", processor=print, region="us-east-1")
)
KILLED = "Worker w-0 (process 1, pid 100) was killed by SIGKILL"


class Program:
    """The processes of a program, and the actions at each step."""

    def __init__(self, count: int = 2, rules: Rules = RULES) -> None:
        roster = Roster(rules).scaled(count)
        self.state = SupervisorState(
            "Application app", SUPERVISED, WITHIN, roster, GatheredReports()
        )
        self.now = 0.0

    def act(self, seconds: float = 0.0) -> tuple[Action, ...]:
        self.now += seconds
        self.state = self.state.checked_shutdown(self.now)
        self.state, actions = self.state.reconciled(self.now)
        return actions

    def says(self, slot: int, *messages: Hello | Report | Leaving | Ended | Disconnected) -> None:
        for message in messages:
            self.state = self.state.received(f"w-{slot}", message, self.now)

    def joins(self, slot: int, job: int) -> None:
        self.says(slot, Hello(f"w-{slot}", slot, job, 0, "here", 100 + slot))

    def ends(
        self, job: int, error: str | None = KILLED, *, is_transient: bool = True, slot: int = 0
    ) -> None:
        """A process has ended, without a last message if there is an error."""
        if error is not None:
            self.says(slot, Disconnected())
        self.state = self.state.job_ended(job, error, self.now, is_transient=is_transient)

    def fleet(self) -> FleetState:
        return self.state.roster.state

    def notes(self) -> tuple[str, ...]:
        return self.state.reports.notes

    def workers(self) -> dict[str, WorkerState]:
        return {one.worker_id: one.state for one in self.state.roster.present()}


def running(count: int = 2, rules: Rules = RULES) -> Program:
    """A program whose processes all run."""
    program = Program(count, rules)
    program.act()
    for slot in range(count):
        program.joins(slot, slot + 1)
    assert program.act() == tuple(SendStart(f"w-{slot}") for slot in range(count))
    for slot in range(count):
        program.says(slot, Report((), 0, is_running=True))
    return program


def test_each_wanted_process_is_a_job_of_its_own_and_starts_once() -> None:
    program = Program()
    assert program.act() == (Submit(1, (0,)), Submit(2, (1,)))
    assert (program.act(), program.state.roster.waiting) == ((), 2)
    assert set(running().workers().values()) == {WorkerState.RUNNING}


def test_a_process_that_is_silent_is_let_alone() -> None:
    """It is stopped, or computes: its supervisor would see it end."""
    program = running()
    assert program.act(10 * RULES.lost_after) == ()
    assert set(program.workers()) == {"w-0", "w-1"}


def test_a_process_that_was_killed_is_replaced_and_the_notes_say_so() -> None:
    program = running()
    program.says(0, Report((), 7, is_running=True))
    program.ends(1)
    assert program.act(0.4) == ()
    assert program.act(0.1) == (Submit(3, (0,)),)
    lost, note = program.notes()[-2:]
    assert lost.startswith("Lost worker w-0 on here; its last report, 0.0 s ago")
    assert note == (
        f"{KILLED}. Another process takes its place in 0.5 s; its shards are read on from their "
        "checkpoints"
    )
    assert set(program.workers()) == {"w-1"}
    program.joins(0, 3)  # its successor has the same id
    assert program.act() == (SendStart("w-0"),)
    program.says(0, Report((), 5, is_running=True))
    status = program.state.status(program.now)
    assert (status.records, status.lost_workers, program.state.restarts.count) == (12, 1, 1)


def test_what_a_killed_process_of_a_queue_had_in_hand_comes_again() -> None:
    program = running()
    queue = QueueApplication("orders", print, region="us-east-1")
    program.state = replace(program.state, supervised=SupervisedQueue.of(queue))
    program.says(0, Report((), 7, is_running=True))
    program.ends(1)
    again = "the records that it had in hand are delivered again once their holds end"
    lost, note = program.notes()[-2:]
    assert lost.startswith(
        f"Lost worker w-0 on here; its last report, 0.0 s ago, counted 7 records; {again}. "
    )
    assert note == f"{KILLED}. Another process takes its place in 0.5 s; {again}"


def test_the_waits_grow_while_a_process_dies_again_and_again() -> None:
    program, waits = running(1, replace(RULES, phase=0.5)), []
    for job in range(1, 9):
        program.ends(job)
        waits.append(program.state.roster.slots[0].retry_at - program.now)
        (again,) = program.act(waits[-1])
        assert again == Submit(job + 1, (0,))
        program.joins(0, job + 1)
        program.act()
        program.says(0, Report((), 0, is_running=True))
    assert waits == [0.75 * one for one in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)]
    program.now += 61.0
    program.says(0, Report((), 0, is_running=True))
    program.ends(9)
    assert program.state.roster.slots[0].retry_at - program.now == 0.75, "after a good life"


def test_processes_that_die_together_do_not_start_together() -> None:
    """Those of a program, and those of programs on several machines."""
    pauses = {RULES.backoff(slot, 1) for slot in range(8)}
    assert len(pauses) == 8
    assert 0.5 <= min(pauses) < 0.6
    assert 0.9 < max(pauses) <= 1.0
    assert replace(RULES, phase=0.3).backoff(0, 1) != RULES.backoff(0, 1)


def test_a_process_that_cannot_be_started_is_tried_again() -> None:
    program = Program(1)
    program.act()
    program.ends(1, "Worker process 1 could not be started: no memory")
    assert program.fleet() is FleetState.RUNNING
    assert program.act(0.5) == (Submit(2, (0,)),)
    assert program.notes()[0].startswith(
        "Worker process 1 could not be started: no memory. Another"
    )


def test_an_error_that_each_worker_would_meet_ends_all() -> None:
    program = running()
    program.says(0, Ended(False, "throttled", is_transient=True))
    program.ends(1, None)
    assert program.fleet() is FleetState.RUNNING
    assert program.state.roster.slots[0].retry_at > program.now, "a failure: not at once"
    program.says(1, Ended(False, "no processor"))
    program.ends(2, None)
    assert (program.fleet(), program.state.roster.error) == (
        FleetState.SHUTTING_DOWN,
        "no processor",
    )
    program.act()
    assert program.fleet() is FleetState.FAILED


def test_an_error_during_a_shutdown_is_not_that_of_the_program() -> None:
    program = running()
    program.state = program.state.shut_down(WITHIN)
    program.act()
    program.says(0, Ended(False, "the table is gone"))
    assert program.state.roster.error is None


def test_a_first_process_that_cannot_import_the_program_ends_all() -> None:
    program = Program()
    program.act()
    program.ends(1, "exit code 1", is_transient=False)
    assert (program.fleet(), program.state.roster.error) == (
        FleetState.SHUTTING_DOWN,
        "exit code 1",
    )
    program.ends(2, "exit code 1", is_transient=False)
    assert program.notes() == (), "the error is raised, and told once"
    later = running()
    later.ends(1, "exit code 1", is_transient=False)
    assert later.fleet() is FleetState.RUNNING, "the program could be imported before"


def test_all_have_the_time_of_the_shutdown_and_are_killed_then() -> None:
    program = running()
    program.state = program.state.shut_down(WITHIN)
    assert program.act() == (SendShutDown("w-0"), SendShutDown("w-1"))
    assert program.state.shutdown_within == WITHIN
    assert program.act(WITHIN + 9.9) == ()
    assert program.act(0.1) == (Cancel(1, at_once=True), Cancel(2, at_once=True))
    program.says(0, Disconnected())
    program.ends(1)
    assert program.fleet() is FleetState.SHUTTING_DOWN
    program.ends(2, slot=1)
    program.act()
    assert program.fleet() is FleetState.ENDED


def test_a_second_request_leaves_less_time_and_never_more() -> None:
    program = running()
    for within in (WITHIN, 0.0, 1000.0):
        program.state = program.state.shut_down(within)
    assert program.act() == (SendShutDown("w-0"), SendShutDown("w-1"))
    assert program.state.shutdown_within == 0.0
    assert program.act(9.9) == ()
    assert len(program.act(0.1)) == 2


def test_workers_that_were_told_of_more_time_are_told_again() -> None:
    program = running(1)
    program.state = program.state.shut_down(WITHIN)
    assert program.act() == (SendShutDown("w-0"),)
    program.state = program.state.shut_down(WITHIN)
    assert program.act() == (), "nothing is new"
    program.state = program.state.shut_down(1.0)
    assert program.act() == (SendShutDown("w-0"),)
    program.state = program.state.shut_down(WITHIN)
    assert (program.act(), program.state.shutdown_within) == ((), 1.0)


def test_one_end_that_was_not_graceful_is_remembered() -> None:
    program = running()
    program.says(0, Ended(False))
    program.says(1, Ended(True))
    assert not program.state.are_all_graceful


def test_a_worker_that_ends_without_a_reason_has_failed() -> None:
    program = running()
    program.says(0, Ended(True))
    program.ends(1, None)
    assert program.act() == ()
    assert program.act(0.5) == (Submit(3, (0,)),)


def test_a_process_that_has_just_begun_ends_with_the_others() -> None:
    program = Program(1)
    program.act()
    program.state = program.state.shut_down(WITHIN)
    assert program.act() == (Cancel(1, at_once=False),)


def test_a_worker_that_leaves_is_replaced_unless_all_are_to_leave() -> None:
    program = running()
    program.says(0, Leaving("it received SIGTERM"))
    assert program.workers()["w-0"] is WorkerState.LEAVING
    program.says(0, Ended(True))
    program.ends(1, None)
    assert program.act() == (Submit(3, (0,)),), "at once: it has not failed"
    program.says(1, Leaving("a processor asks", is_for_all=True))
    assert program.fleet() is FleetState.SHUTTING_DOWN


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "has ended with exit code 3; its output on stderr may say why"),
        (0, "has ended without a word"),
        (None, "has ended without a word"),
        (-9, "was killed by SIGKILL (Linux does so when memory runs out)"),
        (-11, "was killed by SIGSEGV"),
        (-200, "was killed by signal 200"),
    ],
)
def test_the_note_says_how_a_process_has_ended(code: int | None, text: str) -> None:
    assert how_it_ended(code) == text
