"""The decisions of a fleet, event by event; and a model test that it reaches its goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from sparkinesis.status import FleetState, WorkerState
from sparkinesis.worker.supervision.control_messages import Ended, Hello
from sparkinesis.worker.supervision.reconciling import (
    Action,
    Cancel,
    Disconnect,
    Restarts,
    SendShutDown,
    SendStart,
    SendWait,
    Submit,
    reconcile,
)
from sparkinesis.worker.supervision.roster import Roster, Rules
from tests.examples import examples

RULES = Rules(heartbeat_interval=1.0, lost_after=3.0, first_backoff=1.0, longest_backoff=8.0)
Fact = Callable[[Roster, float], Roster]
AT_WORK = {WorkerState.STARTING, WorkerState.RUNNING}
OVER = {FleetState.ENDED, FleetState.FAILED}


@dataclass
class Play:
    """A roster, and its actions at each step."""

    roster: Roster = field(default_factory=lambda: Roster(RULES).scaled(1))
    now: float = 100.0

    def then(self, fact: Fact | None = None) -> tuple[Action, ...]:
        if fact is not None:
            self.roster = fact(self.roster, self.now)
        self.roster, actions = reconcile(self.roster, self.now)
        assert reconcile(self.roster, self.now) == (self.roster, ()), "settling twice does no more"
        return actions

    def after(self, seconds: float) -> tuple[Action, ...]:
        self.now += seconds
        return self.then()

    def fleet(self) -> FleetState:
        return self.roster.state

    def state(self, worker: str = "a") -> WorkerState:
        return self.roster.members[worker].state


def joins(worker: str = "a", slot: int = 0, job: int = 1, attempt: int = 0, **said: Any) -> Fact:
    hello = Hello(worker, slot, job, attempt, "host", 1, 2, 3, **said)
    return lambda roster, now: roster.joined(hello, now)


def reports(worker: str = "a", *, runs: bool = True) -> Fact:
    return lambda roster, now: roster.heard(worker, now, is_running=runs)


def breaks(worker: str = "a") -> Fact:
    return lambda roster, now: roster.disconnected(worker, now)


def ends(worker: str = "a", error: str | None = None, *, is_transient: bool = False) -> Fact:
    return lambda roster, now: roster.ended(worker, Ended(True, error, is_transient), now)


def job_ends(error: str | None = None, job: int = 1) -> Fact:
    return lambda roster, now: roster.job_ended(job, error, now)


def leaves(worker: str = "a", *, for_all: bool = False) -> Fact:
    return lambda roster, now: roster.leaving(worker, is_for_all=for_all)


def shuts_down(roster: Roster, now: float) -> Roster:
    return roster.shut_down()


def scales(workers: int) -> Fact:
    return lambda roster, now: roster.scaled(workers)


def after(*facts: Fact, workers: int = 1) -> Play:
    """A fleet whose first job has been submitted, and to which this has happened."""
    play = Play(Roster(RULES).scaled(workers))
    assert play.then() == (Submit(1, tuple(range(workers))),)
    for fact in facts:
        play.then(fact)
    return play


def at_work(*facts: Fact) -> Play:
    """A fleet of one running worker, to which this has happened since."""
    play = after()
    assert play.then(joins()) == (SendStart("a"),)
    assert play.state() is WorkerState.STARTING
    assert play.then(reports()) == ()
    assert play.state() is WorkerState.RUNNING
    for fact in facts:
        play.then(fact)
    return play


# --- joining


def worker_that_spark_has_lost() -> Play:
    """A fleet that shuts down; its job has failed, but the job's worker still has its leases."""
    play = at_work()
    assert play.then(job_ends("an executor was lost")) == (SendShutDown("a"),)
    play.then(shuts_down)
    assert play.fleet() is FleetState.SHUTTING_DOWN
    return play


@pytest.mark.parametrize("fact", [ends(), breaks(), lambda roster, now: roster.abandoned()])
def test_a_shutdown_waits_for_a_worker_that_spark_has_lost(fact: Fact) -> None:
    play = worker_that_spark_has_lost()
    play.then(fact)
    assert play.fleet() is FleetState.ENDED


def test_a_shutdown_does_not_wait_for_a_worker_that_is_silent() -> None:
    play = worker_that_spark_has_lost()
    assert play.after(RULES.lost_after - 0.1) == ()
    assert play.fleet() is FleetState.SHUTTING_DOWN
    assert play.after(0.1) == (Disconnect("a"),)
    assert play.fleet() is FleetState.ENDED


def test_a_second_copy_of_a_task_waits_until_the_first_is_gone() -> None:
    play = at_work()
    assert play.then(joins("b", attempt=1)) == (SendWait("b"),)
    assert play.then(breaks("a")) == (SendStart("b"),)
    assert play.roster.slots[0].failures == 0


def test_a_task_that_spark_runs_again_goes_on() -> None:
    play = at_work(breaks("a"))
    assert play.then(joins("b", attempt=1)) == (SendStart("b"),)
    assert play.then(joins("a", is_running=True)) == (SendShutDown("a"),), "it came too late"


def test_a_task_with_few_tries_left_ends_and_its_slot_gets_another_job() -> None:
    play = at_work(breaks("a"))
    assert play.then(joins("b", attempt=2)) == (SendShutDown("b"),)
    play.then(ends("b"))
    assert play.after(RULES.first_backoff - 0.1) == ()
    assert play.after(0.1) == (Submit(2, (0,)),)
    assert play.then(joins("a", is_running=True)) == (SendShutDown("a"),), "it came too late"
    assert play.then(joins("c", job=2)) == (SendStart("c"),)


def test_a_standby_of_a_task_not_wanted_ends_only_after_its_worker() -> None:
    play = at_work(joins("b", attempt=1))
    assert play.then(shuts_down) == (SendShutDown("a"),)
    assert play.then(breaks("a")) == (), "it may be finishing its batch: b's end would kill it"
    assert play.then(joins("a", is_running=True, is_leaving=True)) == ()
    assert play.then(ends("a")) == (SendShutDown("b"),)


def test_a_standby_that_breaks_off_is_forgotten_and_comes_as_new() -> None:
    play = at_work(joins("b", attempt=1), breaks("b"))
    assert "b" not in play.roster.members
    assert play.then(joins("b", attempt=1)) == (SendWait("b"),)


# --- what is said on a connection that breaks


@pytest.mark.parametrize(("has_arrived", "said"), [(False, (SendStart("a"),)), (True, ())])
def test_a_start_that_was_lost_is_said_again_and_no_other(
    has_arrived: bool, said: tuple[Action, ...]
) -> None:
    play = after(joins(), breaks())
    assert play.then(joins(is_running=has_arrived)) == said
    assert play.state() in AT_WORK


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_shutdown_that_did_not_arrive_is_said_on_the_next_connection(is_cut_off: bool) -> None:
    play = at_work(breaks()) if is_cut_off else at_work()
    assert play.then(shuts_down) == (() if is_cut_off else (SendShutDown("a"),))
    assert play.then(breaks()) == ()
    assert play.then(joins(is_running=True)) == (SendShutDown("a"),)
    assert play.then(reports()) == ()
    assert play.state() is WorkerState.LEAVING, "a report of one that leaves does not bring it back"


# --- silence


def test_a_silent_worker_is_dropped_and_has_time_to_come_again() -> None:
    play = at_work()
    assert play.after(RULES.lost_after - 0.1) == ()
    assert play.after(0.1) == (Disconnect("a"),)
    assert play.after(RULES.lost_after - 0.1) == ()
    assert play.then(joins(is_running=True)) == ()
    assert play.roster.slots[0].job == 1


def test_a_slot_of_which_nothing_is_heard_any_more_gets_another_job() -> None:
    play = at_work(breaks())
    assert play.after(RULES.lost_after) == ()
    assert "a" not in play.roster.members
    assert play.after(2 * RULES.lost_after - 0.1) == ()
    play.after(0.1)
    assert play.after(RULES.first_backoff) == (Submit(2, (0,)), Cancel(1))


def test_a_worker_cut_off_while_it_leaves_is_not_killed_at_once() -> None:
    play = at_work()
    for _ in range(10):
        play.after(1.0)
        play.then(reports())
    play.then(shuts_down)
    assert play.then(breaks()) == ()
    assert play.after(RULES.lost_after - 0.1) == ()
    assert play.after(0.1) == (Cancel(1),)


def test_a_cancel_that_did_nothing_is_repeated() -> None:
    play = Play()
    assert play.then() == (Submit(1, (0,)),)
    assert play.then(shuts_down) == (Cancel(1),), "Spark may not know the job yet"
    assert play.after(RULES.heartbeat_interval - 0.1) == ()
    assert play.after(0.1) == (Cancel(1),)
    assert play.then(joins()) == (SendShutDown("a"),), "it has begun meanwhile"
    assert play.after(RULES.heartbeat_interval) == ()


# --- jobs


def test_a_job_that_ends_is_submitted_again_and_waits_longer_each_time() -> None:
    play = at_work()
    for job, wait in enumerate([1.0, 2.0, 4.0, 8.0, 8.0], start=1):
        assert play.then(breaks()) == ()
        assert play.then(job_ends("lost", job)) == ()
        assert play.roster.next_action_at(play.now) == play.now + min(
            wait, RULES.heartbeat_interval
        )
        assert play.after(wait - 0.1) == ()
        assert play.after(0.1) == (Submit(job + 1, (0,)),)
        assert play.then(joins(job=job + 1)) == (SendStart("a"),)


def test_a_worker_that_moves_is_followed_at_once_and_is_no_failure() -> None:
    play = at_work()
    assert play.then(lambda roster, now: roster.decommissioned("a")) == (SendShutDown("a"),)
    assert play.then(ends()) == (Submit(2, (0,)),)
    assert play.roster.slots[0].failures == 0


def test_slots_that_are_due_together_share_a_job_and_lose_it_together() -> None:
    play = Play(Roster(RULES).scaled(2))
    assert play.then() == (Submit(1, (0, 1)),)
    for slot, worker in enumerate("ab"):
        play.then(joins(worker, slot))
        play.then(reports(worker))
    play.then(breaks("a"))
    assert play.then(job_ends("lost")) == (SendShutDown("b"),), "Spark has not killed b, but will"
    assert play.after(1.0) == (Submit(2, (0, 1)),)


def test_news_of_an_earlier_job_is_none() -> None:
    play = at_work(breaks(), job_ends("lost"))
    play.after(1.0)
    before = play.roster
    assert play.then(job_ends("lost")) == ()
    assert play.roster == before


@pytest.mark.parametrize("fact", [job_ends("no executor"), ends(error="no such stream")])
def test_a_fleet_that_cannot_even_start_fails(fact: Fact) -> None:
    play = after(joins(), fact)
    assert play.fleet() is not FleetState.RUNNING
    play.then(breaks())
    play.then(job_ends())
    assert play.fleet() is FleetState.FAILED
    assert play.roster.error in {"no executor", "no such stream"}


@pytest.mark.parametrize(
    ("play", "fact"),
    [
        (at_work, job_ends("no executor")),
        (at_work, ends(error="throttled")),
        (lambda: after(joins()), ends(error="throttled", is_transient=True)),
    ],
    ids=["a job has failed", "a worker has failed", "what may pass, before anything has started"],
)
def test_a_fleet_tries_again(play: Callable[[], Play], fact: Fact) -> None:
    trying = play()
    trying.then(fact)
    assert trying.fleet() is FleetState.RUNNING
    assert Submit(2, (0,)) in trying.after(RULES.first_backoff)


def test_an_error_that_ends_a_queue_s_application_ends_the_fleet() -> None:
    play = after(joins("a", 0), joins("b", 1), reports("a"), reports("b"), workers=2)
    stopped = Ended(True, "ValueError: no good", is_for_all=True)
    assert play.then(lambda roster, now: roster.ended("a", stopped, now)) == (SendShutDown("b"),)
    play.then(ends("b"))
    play.then(job_ends())
    assert (play.fleet(), play.roster.error) == (FleetState.FAILED, "ValueError: no good")


# --- scaling


def test_fewer_workers_spare_those_at_work() -> None:
    play = after(joins("c", 2), workers=3)
    assert play.then(scales(1)) == ()
    assert set(play.roster.slots) == {2}


def test_a_worker_whose_slot_was_given_up_does_not_fill_a_new_one_of_the_same_number() -> None:
    play = after(*(joins(who, slot) for slot, who in enumerate("ab")), workers=2)
    play.then(scales(1))
    assert play.then(scales(2)) == (Submit(2, (1,)),)
    assert play.then(joins("c", 1, 2)) == (SendStart("c"),)
    assert play.then(ends("b")) == ()
    assert play.roster.slots[1].job == 2


def test_a_fleet_that_ends_is_not_scaled() -> None:
    play = at_work(shuts_down)
    assert play.then(scales(5)) == ()
    assert not play.roster.slots


# --- whatever happens


@dataclass
class SparkTask:
    attempts: int = 0
    is_done: bool = False


@dataclass
class Worker:
    """A worker of the model. ``is_known``: Spark knows it."""

    slot: int
    job: int
    attempt: int
    is_known: bool = True
    has_joined: bool = False
    """The driver knows the worker."""
    is_connected: bool = False
    runs: bool = False
    is_leaving: bool = False
    inbox: list[Action] = field(default_factory=list)


class AnyFleet(RuleBasedStateMachine):
    """A roster in a world in which jobs begin late, connections break and workers crash."""

    @initialize(workers=st.integers(1, 3), has_started=st.booleans())
    def begin(self, workers: int, has_started: bool) -> None:
        self.roster = Roster(RULES).scaled(workers)
        self.wanted = workers
        self.now = 0.0
        self.jobs: dict[int, dict[int, SparkTask]] = {}
        self.begun: set[int] = set()
        """The jobs that Spark knows: only those can be cancelled."""
        self.workers: dict[str, Worker] = {}
        self.names = 0
        self.reconcile()
        if has_started:
            self.all_goes_well()

    # --- the world

    def reconcile(self) -> None:
        for _ in range(50):
            before = self.roster
            self.roster, actions = reconcile(self.roster, self.now)
            self.check(actions)
            if self.roster.state in OVER and before.state not in OVER:
                is_alone = not any(m.is_connected for m in self.roster.members.values())
                assert is_alone or self.roster.is_abandoned, "a worker may still have leases"
            for action in actions:
                self.act(action, before)
            if not actions:
                return
        raise AssertionError("it never comes to rest")

    def act(self, action: Action, before: Roster) -> None:
        if isinstance(action, Submit):
            assert action.job not in self.jobs
            self.jobs[action.job] = {slot: SparkTask() for slot in action.slots}
        elif isinstance(action, Cancel):
            if not self.roster.is_abandoned:
                of_job = [m for m in before.members.values() if m.job == action.job]
                assert not any(m.is_connected for m in of_job), "its worker could have been told"
                assert all(slot.job != action.job for slot in self.roster.slots.values())
            if action.job in self.begun and action.job in self.jobs:
                self.end_job(action.job, "cancelled")
        elif isinstance(action, Disconnect):
            self.cut(action.worker_id)
        else:
            worker = self.workers.get(action.worker_id)
            if worker is not None and worker.is_connected:
                worker.inbox.append(action)

    def check(self, actions: tuple[Action, ...]) -> None:
        told = [a.worker_id for a in actions if isinstance(a, SendStart | SendShutDown)]
        assert len(told) == len(set(told)), "one thing at a time"
        members = self.roster.members.values()
        at_work = [m for m in members if m.is_connected and m.state in AT_WORK]
        assert len(at_work) == len({m.slot for m in at_work}), "two are at work for one slot"
        for member in at_work:
            slot = self.roster.slots.get(member.slot)
            assert slot is not None, "not wanted, and not told"
            assert slot.job == member.job, "not wanted, and not told"
        for slot in self.roster.slots.values():
            is_cared_for = slot.job in self.roster.jobs
            assert is_cared_for or (slot.job is None and slot.retry_at > self.now), slot
            assert slot.retry_at - self.now <= RULES.longest_backoff
        is_running = self.roster.state is FleetState.RUNNING
        assert len(self.roster.slots) == (self.wanted if is_running else 0)

    def cut(self, name: str) -> None:
        worker = self.workers[name]
        if worker.is_connected:
            worker.is_connected = False
            worker.inbox.clear()
            self.roster = self.roster.disconnected(name, self.now)

    def connect(self, name: str) -> None:
        worker = self.workers[name]
        worker.is_connected = worker.has_joined = True
        said = {"is_running": worker.runs, "is_leaving": worker.is_leaving}
        fact = joins(name, worker.slot, worker.job, worker.attempt, **said)
        self.roster = fact(self.roster, self.now)

    def obey(self, name: str) -> None:
        worker = self.workers[name]
        for message in worker.inbox:
            if isinstance(message, SendStart):
                worker.runs = worker.runs or not worker.is_leaving
            elif isinstance(message, SendShutDown):
                worker.is_leaving = True
        worker.inbox.clear()

    def end(self, name: str, error: str | None = None) -> None:
        worker = self.workers[name]
        if worker.is_connected:
            self.roster = ends(name, error)(self.roster, self.now)
        self.kill(name)
        if worker.is_known:
            self.jobs[worker.job][worker.slot].is_done = True
            for other in self.copies(worker.job, worker.slot):
                self.kill(other)
            if all(task.is_done for task in self.jobs[worker.job].values()):
                self.end_job(worker.job, None)

    def kill(self, name: str) -> None:
        self.cut(name)
        del self.workers[name]

    def crash(self, name: str) -> None:
        worker = self.workers[name]
        self.kill(name)
        if worker.is_known and self.jobs[worker.job][worker.slot].attempts >= 4:
            self.end_job(worker.job, "crashed too often")

    def copies(self, job: int, slot: int) -> list[str]:
        return [
            name
            for name, worker in self.workers.items()
            if worker.is_known and (worker.job, worker.slot) == (job, slot)
        ]

    def end_job(self, job: int, error: str | None) -> None:
        for slot in self.jobs.pop(job):
            for name in self.copies(job, slot):
                self.kill(name)
        self.roster = self.roster.job_ended(job, error, self.now)

    def begin_task(self, job: int, slot: int) -> None:
        task = self.jobs[job][slot]
        self.begun.add(job)
        self.names += 1
        self.workers[f"w{self.names}"] = Worker(slot, job, task.attempts)
        task.attempts += 1

    def some(self, data: st.DataObject, names: list[str]) -> str | None:
        return data.draw(st.sampled_from(names)) if names else None

    # --- what may happen

    @rule(data=st.data())
    def a_job_is_known_to_spark(self, data: st.DataObject) -> None:
        if self.jobs:
            self.begun.add(data.draw(st.sampled_from(sorted(self.jobs))))

    @rule(data=st.data())
    def a_task_begins_or_a_second_copy(self, data: st.DataObject) -> None:
        tasks = [
            (job, slot)
            for job, tasks in self.jobs.items()
            for slot, task in tasks.items()
            if not task.is_done
        ]
        if tasks and len(self.workers) < 8:
            self.begin_task(*data.draw(st.sampled_from(tasks)))

    @rule(data=st.data())
    def a_worker_connects(self, data: st.DataObject) -> None:
        off = [name for name, worker in self.workers.items() if not worker.is_connected]
        if name := self.some(data, off):
            self.connect(name)
            self.reconcile()

    @rule(data=st.data())
    def a_worker_obeys(self, data: st.DataObject) -> None:
        if name := self.some(data, list(self.workers)):
            self.obey(name)

    @rule(data=st.data(), is_noticed=st.booleans())
    def a_connection_breaks(self, data: st.DataObject, is_noticed: bool) -> None:
        """Break a connection; messages in transit are lost."""
        on = [name for name, worker in self.workers.items() if worker.is_connected]
        if name := self.some(data, on):
            self.cut(name)
            if not is_noticed:
                self.connect(name)
            self.reconcile()

    @rule(data=st.data())
    def a_worker_leaves_by_itself(self, data: st.DataObject) -> None:
        if name := self.some(data, list(self.workers)):
            self.workers[name].is_leaving = True
            if self.workers[name].is_connected:
                self.roster = self.roster.leaving(name, is_for_all=False)
            self.reconcile()

    @rule(data=st.data())
    def a_worker_ends(self, data: st.DataObject) -> None:
        leaving = [name for name, worker in self.workers.items() if worker.is_leaving]
        if name := self.some(data, leaving):
            if self.workers[name].has_joined:
                self.end(name)
            else:
                self.crash(name)  # its task fails, or the driver would wait for it for ever
            self.reconcile()

    @rule(data=st.data())
    def a_worker_cannot_go_on(self, data: st.DataObject) -> None:
        on = [name for name, worker in self.workers.items() if worker.is_connected]
        if name := self.some(data, on):
            self.end(name, "an error")
            self.reconcile()

    @rule(data=st.data())
    def a_worker_crashes(self, data: st.DataObject) -> None:
        if name := self.some(data, list(self.workers)):
            self.crash(name)
            self.reconcile()

    @rule(data=st.data())
    def spark_loses_a_worker_that_lives_on(self, data: st.DataObject) -> None:
        if name := self.some(data, list(self.workers)):
            self.workers[name].is_known = False

    @rule(data=st.data())
    def a_job_fails(self, data: st.DataObject) -> None:
        if self.jobs:
            self.end_job(data.draw(st.sampled_from(sorted(self.jobs))), "an executor was lost")
            self.reconcile()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 9.0]), are_silent=st.booleans())
    def time_passes(self, seconds: float, are_silent: bool) -> None:
        self.now += seconds
        if not are_silent:
            self.all_report()
        self.reconcile()

    def all_report(self) -> None:
        for name, worker in self.workers.items():
            if worker.is_connected:
                self.roster = self.roster.heard(name, self.now, is_running=worker.runs)

    @rule(data=st.data())
    def an_executor_is_to_go(self, data: st.DataObject) -> None:
        members = self.roster.members.values()
        if name := self.some(data, [m.worker_id for m in members if m.state in AT_WORK]):
            self.roster = self.roster.decommissioned(name)
            self.reconcile()

    @precondition(lambda self: self.roster.state is FleetState.RUNNING)
    @rule(workers=st.integers(1, 4))
    def somebody_scales(self, workers: int) -> None:
        self.roster = self.roster.scaled(workers)
        self.wanted = workers
        self.reconcile()

    @precondition(lambda self: self.roster.state is FleetState.RUNNING)
    @rule()
    def somebody_shuts_down(self) -> None:
        self.roster = self.roster.shut_down()
        self.reconcile()

    @precondition(lambda self: self.roster.state is FleetState.SHUTTING_DOWN)
    @rule()
    def a_shutdown_takes_too_long(self) -> None:
        self.roster = self.roster.abandoned()
        self.reconcile()

    @rule()
    def all_goes_well(self) -> None:
        """Without further faults, the fleet reaches its target."""
        for _ in range(60):
            for job, tasks in list(self.jobs.items()):
                self.begun.add(job)
                for slot, task in tasks.items():
                    if not task.is_done and not self.copies(job, slot):
                        self.begin_task(job, slot)
            for name in list(self.workers):
                if name in self.workers and not self.workers[name].is_connected:
                    self.connect(name)
                    self.reconcile()
                if name in self.workers:
                    self.obey(name)
                    if self.workers[name].is_leaving:
                        self.end(name)
            self.now += 1.0
            self.all_report()
            self.reconcile()
            if self.roster.state in OVER:
                return
        assert self.roster.state is FleetState.RUNNING, "everybody obeys, and it does not end"
        running = [m for m in self.roster.members.values() if m.state is WorkerState.RUNNING]
        assert len(running) == self.wanted
        at_work = [w for w in self.workers.values() if w.runs and not w.is_leaving]
        assert len(at_work) == self.wanted

    def teardown(self) -> None:
        if hasattr(self, "roster"):
            self.roster = self.roster.shut_down()
            self.reconcile()
            self.all_goes_well()
            assert self.roster.state in OVER


AnyFleet.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestAnyFleet = AnyFleet.TestCase


# --- backoff


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (99, 8.0)]
)
def test_backoff_doubles_up_to_its_limit(failures: int, seconds: float) -> None:
    assert RULES.backoff(0, failures) == seconds
    assert replace(RULES, first_backoff=20.0).backoff(0, failures) == (8.0 if failures else 0.0)


class Counting(Play):
    """A roster whose restarts are counted."""

    restarts = Restarts()

    def then(self, fact: Fact | None = None):  # type: ignore[no-untyped-def]
        actions = super().then(fact)
        self.restarts = self.restarts.after(self.roster, actions)
        return actions


def started(workers: int = 1) -> Counting:
    """A fleet whose workers "0", "1", ... run."""
    play = Counting(Roster(RULES).scaled(workers))
    play.then()
    for slot in range(workers):
        play.then(joins(str(slot), slot))
        play.then(reports(str(slot)))
    assert play.restarts.count == 0, "nothing has begun again"
    return play


def test_a_job_in_a_slot_that_had_one_is_a_restart_and_its_worker_is_not_another() -> None:
    play = started()
    play.then(breaks("0"))
    play.then(job_ends("lost"))
    assert play.restarts.count == 0, "it has not begun yet"
    play.after(RULES.backoff(0, 1))
    assert play.restarts.count == 1
    play.then(joins("new", job=2))
    play.then(reports("new"))
    assert play.restarts.count == 1


def test_a_second_copy_of_a_task_is_none_until_it_takes_over() -> None:
    play = started()
    play.then(joins("copy", attempt=1))
    assert play.restarts.count == 0
    play.then(breaks("0"))
    assert play.restarts.count == 1


@pytest.mark.parametrize("is_running", [True, False], ids=["at work", "to be started again"])
def test_a_worker_that_comes_again_is_the_same_one(is_running: bool) -> None:
    play = started()
    play.then(breaks("0"))
    play.then(joins("0", is_running=is_running))
    assert play.restarts.count == 0


def test_more_workers_are_none_and_a_slot_that_was_removed_begins_anew() -> None:
    play = started()
    play.then(scales(2))
    play.then(joins("1", 1, 2))
    play.then(scales(1))
    play.then(ends("1"))
    play.then(job_ends(job=2))
    play.then(scales(2))
    assert play.roster.slots[1].job == 3
    assert play.restarts.count == 0
    assert play.restarts.submitted == {0, 1}


@pytest.mark.parametrize("slots", [1, 4])
def test_what_is_remembered_does_not_grow(slots: int) -> None:
    play = started(slots)
    for job in range(1, 30):
        for slot in range(slots):
            play.then(ends(f"{slot}" if job == 1 else f"{job}-{slot}", "out of luck"))
        play.then(job_ends("lost", job))
        play.after(RULES.longest_backoff + 1)
        for slot in range(slots):
            play.then(joins(f"{job + 1}-{slot}", slot, job + 1))
    assert play.restarts.count == 29 * slots
    assert len(play.restarts.submitted) == len(play.restarts.begun) == slots
