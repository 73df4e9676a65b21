"""The processes of an application's workers: started, paused, killed, and started again."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Literal

from sparkinesis.application import Application
from sparkinesis.errors import DuplicateWorkerIdError, SparkinesisError
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.lifecycle.batch_loop import BatchLoop
from sparkinesis.worker.lifecycle.streams.stream_config import FormerStreams, StreamConfig
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.function_processors import Processor
from sparkinesis.worker.processors.processor import ProcessorFactory, RecordProcessor
from tests.simulation import history as events
from tests.simulation.history import History, Way
from tests.simulation.journal import EPOCH_MS, Journal
from tests.simulation.kinesis import REGION
from tests.simulation.memory import Notes
from tests.simulation.processor import (
    SimulatedCoroutines,
    SimulatedFailureError,
    SimulatedFunction,
    SimulatedProcessor,
    on_error,
)
from tests.simulation.producer import STREAM
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.storing import StoringProcessor

APPLICATION = "app"
TWINS = 100
"""The difference between the numbers of a worker and its twin."""

Life = (
    events.Start
    | events.Twin
    | events.Crash
    | events.Pause
    | events.Hold
    | events.Shutdown
    | events.ClockJump
)


@dataclass
class Slot:
    """One worker: its successive processes."""

    number: int
    worker_id: str = ""
    starts: int = 0
    process: Process | None = None
    worker: Worker | None = None
    stop: Callable[[], object] | None = None
    """Shuts it down gracefully; None until it is there."""
    is_wanted: bool = False
    """True from the start until a crash or a shutdown."""
    clock_ahead: float = 0.0
    """The error of its wall clock in seconds."""


@dataclass
class Held:
    """A pause of a shard by its program."""

    process: str
    key: str | None
    """The key of the shard's lease; None: all shards of the worker."""
    since: float
    until: float = math.inf
    """Infinite while the program has not resumed the shard."""


@dataclass
class WorkerFleet:
    history: History
    scheduler: Scheduler
    journal: Journal
    options: WorkerOptions
    slots: dict[int, Slot] = field(default_factory=dict)
    worker_ids: dict[Process, str] = field(default_factory=dict)
    started_at: dict[Process, float] = field(default_factory=dict)
    leaves_at: dict[Process, float] = field(default_factory=dict)
    """When each process was told to shut down."""
    ended_at: dict[Process, float] = field(default_factory=dict)
    """When each process was killed, or its program had ended."""
    duplicates: list[tuple[float, Process]] = field(default_factory=list)
    """The times at which a worker ended because another one had its worker id."""
    resumed: set[tuple[str, float]] = field(default_factory=set)
    """The times at which each process resumed after a pause."""
    suspended: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """When a process resumed and for how long its own clock had stood still, by process."""
    ungraceful: set[str] = field(default_factory=set)
    """The processes of workers that were forced to shut down."""
    memory: Notes = field(init=False)
    tracked: tuple[int, ...] = ()
    """Of several streams, the tracker's answer now."""
    tracker_fails: bool = False
    answers: dict[str, list[tuple[float, tuple[int, ...]]]] = field(default_factory=dict)
    """The answers of the tracker and their times (virtual seconds), by process."""

    def __post_init__(self) -> None:
        self.memory = Notes(self.scheduler)
        history = self.history
        everything = tuple(range(len(history.streams)))
        self.tracked = everything if history.tracked is None else history.tracked

    holds: list[Held] = field(default_factory=list)
    """The pauses of shards by their programs."""

    # --- what happens

    def happen(self, event: Life) -> None:
        if isinstance(event, events.Twin):
            self._twin(event.worker)
            return
        slot = self.slots.setdefault(event.worker, Slot(event.worker))
        process = slot.process
        if isinstance(event, events.ClockJump):
            slot.clock_ahead += event.seconds
        elif isinstance(event, events.Start):
            if process is None or not process.is_alive:
                self._start(slot, event.same_id)
        elif process is None or not process.is_alive:
            if not isinstance(event, events.Pause | events.Hold):
                slot.is_wanted = False  # nor is it started again, with another id
        elif isinstance(event, events.Crash):
            process.kill()
            self.ended_at[process] = self.scheduler.now
            slot.is_wanted, slot.worker, slot.stop = False, None, None
        elif isinstance(event, events.Pause):
            process.pause()
            since = self.scheduler.now if event.is_suspended else None
            ends = self.scheduler.now + event.seconds
            self.scheduler.at(ends, functools.partial(self._resume, process, since))
        elif isinstance(event, events.Hold):
            self.scheduler.spawn(process, "hold", functools.partial(self._hold, slot, event))
        else:
            self.shut_down(slot)

    def _hold(self, slot: Slot, event: events.Hold) -> None:
        """Pauses shards of a worker, as a thread of its program does, and resumes them."""
        worker = slot.worker
        if worker is None or slot.process is None or worker.is_shutting_down:
            return
        key = None
        if event.place is not None:
            keys = [one.lease for one in worker.status()]
            if not keys:
                return
            key = keys[int(event.place * len(keys))]
        if not worker.pause(key):
            return
        held = Held(slot.process.name, key, self.scheduler.now)
        self.holds.append(held)
        self.journal.write(key or "", "paused by its program")
        self.scheduler.sleep(event.seconds)
        held.until = self.scheduler.now
        worker.resume(key)
        self.journal.write(key or "", "resumed by its program")

    def _twin(self, number: int) -> None:
        slot = self.slots.get(number)
        twin = self.slots.setdefault(TWINS + number, Slot(TWINS + number))
        if slot is not None and slot.worker_id and not (twin.process and twin.process.is_alive):
            twin.worker_id = slot.worker_id
            self._start(twin, same_id=True)

    def resume_all(self) -> None:
        for slot in self.slots.values():
            if slot.process is not None:
                self._resume(slot.process)

    def _resume(self, process: Process, suspended_since: float | None = None) -> None:
        if not process.is_paused:
            return
        now = self.scheduler.now
        self.resumed.add((process.name, now))
        if suspended_since is not None:
            process.stood_still(now - suspended_since)
            self.suspended.setdefault(process.name, []).append((now, now - suspended_since))
        process.resume()

    def shut_down(self, slot: Slot) -> None:
        slot.is_wanted = False
        assert slot.process is not None
        self.leaves_at[slot.process] = self.scheduler.now
        if slot.stop is not None:
            self.scheduler.spawn(slot.process, "shutdown", slot.stop)
        # A worker that is only just being made shuts down as soon as it is there.

    def wanted(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.is_wanted]

    def live_processes(self) -> list[Process]:
        return [
            slot.process
            for slot in self.slots.values()
            if slot.process is not None and slot.process.is_alive
        ]

    def has_worker(self, since: float, until: float) -> bool:
        """True if some process was there before, and is not told to end before ``until``."""
        return any(
            at <= since
            and min(self.ended_at.get(process, math.inf), self.leaves_at.get(process, math.inf))
            > until
            for process, at in self.started_at.items()
        )

    def worker_of(self, process: Process) -> int | None:
        return next((n for n, slot in self.slots.items() if slot.process is process), None)

    def started_of(self, process: str) -> float | None:
        """When a process of this name started; None: there is none."""
        return next((at for p, at in self.started_at.items() if p.name == process), None)

    # --- a process

    def _start(self, slot: Slot, same_id: bool) -> None:
        slot.starts += 1
        if not (same_id and slot.worker_id):
            # A worker id of this library; see `sparkinesis.lease.rules.other_workers`.
            slot.worker_id = f"w{slot.number}-{slot.starts}-{0:012x}"
        name = f"worker {slot.number}, life {slot.starts}"
        process = slot.process = self.scheduler.process(name)
        self.worker_ids[process] = slot.worker_id
        self.started_at[process] = self.scheduler.now
        slot.is_wanted, slot.worker, slot.stop = True, None, None
        self.scheduler.spawn(process, "main", lambda: self._main(slot, process, slot.worker_id))

    def _main(self, slot: Slot, process: Process, worker_id: str) -> None:
        """Restarts a worker that failed, like a supervisor, until the slot is to shut down."""
        application = self._application(slot, worker_id)
        seed = self.scheduler.rng.getrandbits(32)
        timing = Timing(
            clock=process.monotonic,
            sleep=self.scheduler.sleep,
            wall_clock_ms=lambda: self.journal.now_ms() + round(slot.clock_ahead * 1000),
            new_rng=lambda: random.Random(seed),
        )
        memory = self.memory.budget(self.history.memory, process)

        def new_worker(factory: ProcessorFactory | None = None) -> Worker:
            made = application if factory is None else replace(application, processor=factory)
            slot.worker = made.worker(timing=timing, memory=memory)
            return slot.worker

        while _is_wanted(slot):
            try:
                if self.history.way == "loop":
                    self._iterate(slot, new_worker)
                else:
                    worker = new_worker()
                    slot.stop = worker.shutdown
                    if not _is_wanted(slot):
                        break
                    worker.start()
                    worker.wait()
            except DuplicateWorkerIdError as error:
                self.duplicates.append((self.scheduler.now, process))
                self._another_id(slot, error)
                break
            except (SparkinesisError, SimulatedFailureError) as error:
                self.journal.write("", "worker failed", type(error).__name__)
                self._shut_down_now(slot)
                self.scheduler.sleep(5.0)
            else:
                break
        self._note_end(slot)
        self.ended_at[process] = self.scheduler.now

    def _iterate(self, slot: Slot, new_worker: Callable[[ProcessorFactory], Worker]) -> None:
        """Processes batches in a loop, until its worker is shut down."""
        noting: dict[str, SimulatedProcessor] = {}

        def beside(factory: ProcessorFactory) -> RecordProcessor:
            made = SimulatedProcessor(self.journal, self.history, lambda: _leave(slot))
            return made.beside(factory(), noting)

        loop = BatchLoop(APPLICATION, lambda factory: new_worker(lambda: beside(factory)), None)
        with loop:
            slot.stop = loop._request_shutdown
            if _is_wanted(slot):
                for batch in loop:
                    noting[batch.shard.id].process_records(batch, batch)

    def _shut_down_now(self, slot: Slot) -> None:
        if slot.worker is not None:
            slot.worker.shutdown()
            self._note_end(slot)

    def _note_end(self, slot: Slot) -> None:
        if slot.worker is not None and slot.process is not None and not slot.worker.was_graceful:
            self.ungraceful.add(slot.process.name)

    def _another_id(self, slot: Slot, error: SparkinesisError) -> None:
        """Gives the slot another worker id, like an operator who reads the error in the log."""
        self.journal.write("", "worker failed", type(error).__name__)
        self._shut_down_now(slot)
        if _is_wanted(slot):
            self.scheduler.at(self.scheduler.now + 5.0, lambda: self._start_if_wanted(slot))

    def _start_if_wanted(self, slot: Slot) -> None:
        if not slot.is_wanted:
            return
        if slot.process is not None and slot.process.is_alive:  # on its way out
            self.scheduler.at(self.scheduler.now + 5.0, lambda: self._start_if_wanted(slot))
        else:
            self._start(slot, same_id=False)

    def _application(self, slot: Slot, worker_id: str) -> Application:
        history = self.history
        if history.streams:
            return self._application_of_several(slot, worker_id)
        position = history.initial_position
        kind = SimulatedCoroutines if history.is_async else SimulatedProcessor
        if history.has_store:
            kind = StoringProcessor

        def new_processor() -> SimulatedProcessor:
            return kind(self.journal, history, lambda: _leave(slot))

        processors: dict[Way, Processor | None] = {
            "class": new_processor,
            "function": SimulatedFunction(new_processor, self.options.concurrency is None),
            "loop": None,
        }
        return Application(
            APPLICATION,
            STREAM,
            processors[history.way],
            region=REGION,
            initial_position=position if isinstance(position, str) else instant(position),
            on_error=on_error(history, self.journal),
            worker_id=worker_id,
            options=self.options,
        )

    def _application_of_several(self, slot: Slot, worker_id: str) -> Application:
        history, former = self.history, self.history.former
        assert slot.process is not None
        answers = self.answers.setdefault(slot.process.name, [])
        only = None if former.only is None else [stream_name(number) for number in former.only]

        def track() -> list[StreamConfig]:
            if self.tracker_fails:
                raise SimulatedFailureError
            answers.append((self.scheduler.now, self.tracked))
            return [self._config(number, slot) for number in self.tracked]

        return Application(
            APPLICATION,
            region=REGION,
            streams=track,
            former_streams=FormerStreams(
                former.delete_after, None if only is None else lambda: only
            ),
            on_error=on_error(history, self.journal),
            worker_id=worker_id,
            options=self.options,
        )

    def _config(self, number: int, slot: Slot) -> StreamConfig:
        name, position = stream_name(number), initial_position(self.history, number)
        return StreamConfig(
            name,
            lambda: SimulatedProcessor(self.journal, self.history, lambda: _leave(slot), name),
            position if isinstance(position, str) else instant(position),
        )


def stream_name(number: int) -> str:
    """The name of one of several streams."""
    return f"{STREAM}-{number}"


def initial_position(history: History, number: int) -> Literal["latest", "trim_horizon"] | float:
    """The initial position of one of several streams."""
    own = history.streams[number].initial_position
    return history.initial_position if own is None else own


def instant(seconds: float) -> datetime:
    since = timedelta(milliseconds=EPOCH_MS + round(seconds * 1000))
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + since


def _is_wanted(slot: Slot) -> bool:
    """Reads the flag anew: other tasks change it while one waits."""
    return slot.is_wanted


def _leave(slot: Slot) -> None:
    slot.is_wanted = False
