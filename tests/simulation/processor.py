"""A record processor that writes down what it is given, and behaves as a history says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.targets import FailedRecords
from sparkinesis.worker.lifecycle.batch_loop import LoopBatch
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
from sparkinesis.worker.processors.function_processors import RecordFunction
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests.simulation.coroutines import Pauses
from tests.simulation.history import History, Policy
from tests.simulation.journal import Journal, Place

_ALL = "all keys"

_HANGS = 60.0
"""The duration of a hanging call in seconds."""


class SimulatedFailureError(Exception):
    """An error that a simulated record processor raises."""


def _later() -> Iterator[None]:
    """A generator that nobody iterates: its work is never done."""
    yield


def place_of(record: UserRecord) -> Place:
    return record.sequence_number, record.sub_sequence_number


class SimulatedProcessor(RecordProcessor):
    """``leaves``: called when the processor requests the application's shutdown.

    ``stream``: the name of the stream that it is for, of several.
    """

    def __init__(
        self, journal: Journal, history: History, leaves: Callable[[], None], stream: str = ""
    ) -> None:
        journal.readers += 1
        self._reader = journal.readers
        self._journal = journal
        self._behaviour = history.behaviour
        self._policy = history.on_error
        self._faults_end = history.duration
        self._options = history.options
        self._is_loop = history.way == "loop"
        self._is_automatic = history.is_automatic
        """True if the worker checkpoints what this processor does not."""
        self._leaves = leaves
        self._scheduler = journal.scheduler
        self._running: list[str | None] = []
        """The partition keys of the calls that run."""
        self._has_moved = False
        """True if the present call reset its shard: its records do not count as processed then."""
        self._stream = stream
        self._shard = ""
        self._tag = ""
        self._request_shutdown: Callable[[], None] = lambda: None
        self._last: ExtendedSequenceNumber | None = None
        """The last record of the last batch that it is done with."""

    @property
    def takes_one(self) -> bool:
        """True if each call is for one record."""
        return "concurrency" in self._options

    def beside(
        self, made: RecordProcessor, noting: dict[str, SimulatedProcessor] | None = None
    ) -> RecordProcessor:
        """Is told the calls of the package's own record processor, but for those with records.

        ``noting``: takes this processor, by its shard.
        """
        begin = made.initialize

        def initialize(shard: ProcessorShard) -> None:
            begin(shard)
            if noting is not None:
                noting[shard.id] = self
            self.initialize(shard)

        calls: dict[str, object] = {"initialize": initialize}
        calls |= {
            one: getattr(self, one) for one in ("lease_lost", "shard_ended", "shutdown_requested")
        }
        vars(made).update(calls)
        return made

    def initialize(self, shard: ProcessorShard) -> ExtendedSequenceNumber | None:
        self._shard = shard.id
        if shard.stream_id is not None:
            self._shard = f"{shard.stream_id}:{shard.id}"
            self._tag = self._journal.tags.get(shard.stream_id, "")
            if shard.stream != self._stream:
                self._write("stray", f"a shard of {shard.stream}, to one for {self._stream}")
        self._request_shutdown = shard.request_shutdown
        with self._called("initialize", shard.checkpoint):
            self._fail_elsewhere()
        self._write("initialized")
        return None

    def process_records(
        self, batch: RecordBatch, checkpointer: Checkpointer | LoopBatch | None = None
    ) -> Any:
        return self._run(self._work(batch.records, checkpointer))

    def process_record(self, record: UserRecord) -> Any:
        return self._run(self._work([record], key=record.partition_key))

    def _run(self, steps: Iterator[float]) -> Any:
        try:
            while True:
                self._scheduler.sleep(next(steps))
        except StopIteration as end:
            return end.value

    def _work(
        self,
        records: list[UserRecord],
        checkpointer: Checkpointer | LoopBatch | None = None,
        key: str | None = _ALL,
    ) -> Generator[float, None, Any]:
        """Processes records; yields the seconds of each pause, and returns what the call does."""
        if not records:
            return None
        strays = [
            one.data.decode() for one in records if not one.data.startswith(self._tag.encode())
        ]
        if strays:
            self._write("stray", strays)
        handed = self._journal.handed.setdefault(self._shard, {})
        places = [place_of(record) for record in records]
        for place in places:
            handed.setdefault(place, self._scheduler.now)
        self._has_moved = False
        defers = self._behaviour.defers
        if defers and self._are_there_faults() and self._scheduler.rng.random() < defers:
            with self._called("records", places, key):
                return _later()
        with self._called("records", places, key):
            yield from self._process_all(records, checkpointer)
        if not self._has_moved:
            self._done(records)
            self._write("processed", places)
            self._last = records[-1].position
            if self._is_automatic:
                self._journal.claim(self._shard, self._last)
        self._journal.counts.returned(self._shard, len(records))
        return None

    def _process_all(
        self, records: list[UserRecord], checkpointer: Checkpointer | LoopBatch | None
    ) -> Iterator[float]:
        chance, behaviour = self._scheduler.rng.random, self._behaviour
        if chance() < behaviour.slow:
            yield self._slowest() * chance()
        if self._are_there_faults():
            if chance() < behaviour.hang:
                yield _HANGS
            # Who has hung until faults ended stays: nobody would be there in its place.
            if chance() < behaviour.leave and self._are_there_faults():
                self._leaves()
                self._request_shutdown()
        if chance() < behaviour.odd_checkpoint:
            self._checkpoint(checkpointer, records[: 1 + int(chance() * len(records))])
        if any(record.partition_key == f"k{behaviour.poison}" for record in records):
            raise SimulatedFailureError
        if chance() < self._fail_rate():
            self._fail()
        if chance() < behaviour.checkpoint:
            self._checkpoint(checkpointer, records, explicit=chance() < 0.5)
        if self._are_there_faults() and chance() < behaviour.reset:
            self._reset(checkpointer)

    def _fail(self) -> None:
        raise SimulatedFailureError

    def _fail_rate(self) -> float:
        """The probability of failure; zero after all faults if failures cost more than a retry."""
        gives_up = (self._policy != "retry" or self._is_loop) and not self._are_there_faults()
        return 0.0 if gives_up else self._behaviour.fail

    def _slowest(self) -> float:
        """The longest call; short after the end of faults if slow calls cost shards."""
        slowest, limit = self._behaviour.slowest, self._options.get("processing_time_limit")
        if limit is None or self._are_there_faults():
            return slowest
        return min(slowest, float(limit) / 2)

    def _are_there_faults(self) -> bool:
        return self._scheduler.now < self._faults_end

    def _checkpoint(
        self,
        checkpointer: Checkpointer | LoopBatch | None,
        done: list[UserRecord],
        *,
        explicit: bool = True,
    ) -> None:
        if checkpointer is None:
            return
        at = done[-1]
        self._journal.claim(self._shard, at.position)
        # Who checkpoints says so. Whether what fails behind it is given again shows elsewhere.
        self._done(done)
        chance = self._scheduler.rng.random
        if isinstance(checkpointer, LoopBatch):
            if not checkpointer.checkpoint(at if explicit else None):
                return
        elif chance() < self._behaviour.prepare:
            checkpointer.prepare(at).checkpoint()
        elif not explicit:
            checkpointer.checkpoint()
        elif chance() < 0.5:
            checkpointer.checkpoint(at)
        else:
            checkpointer.checkpoint(at.sequence_number, at.sub_sequence_number)
        self._write("checkpointed", place_of(at))

    def _reset(self, checkpointer: Checkpointer | LoopBatch | None) -> None:
        if isinstance(checkpointer, LoopBatch):
            checkpointer = checkpointer.checkpointer
        if checkpointer is None:
            return
        chance, now_ms = self._scheduler.rng.random, self._journal.now_ms()
        to: str | datetime = "TRIM_HORIZON" if chance() < 0.5 else "LATEST"
        if chance() < 0.4:
            since = timedelta(milliseconds=now_ms - round(60_000 * chance()))
            to = datetime(1970, 1, 1, tzinfo=timezone.utc) + since
        self._write("resets", to)
        checkpointer.reset(to)
        self._has_moved, self._last = True, None
        self._write("reset", to)

    def lease_lost(self) -> None:
        with self._called("lease_lost"):
            self._fail_elsewhere()

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        with self._called("shard_ended"):
            self._journal.claim(self._shard, ExtendedSequenceNumber("SHARD_END"))
            if self._scheduler.rng.random() < self._behaviour.fail:
                raise SimulatedFailureError
            if self._behaviour.checkpoint_at_shutdown or not self._is_automatic:
                checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        with self._called("shutdown_requested"):
            self._fail_elsewhere()
            if self._behaviour.checkpoint_at_shutdown:
                if self._last is not None:
                    self._journal.claim(self._shard, self._last)
                checkpointer.checkpoint()

    def _fail_elsewhere(self) -> None:
        if self._scheduler.rng.random() < self._behaviour.fail_elsewhere:
            raise SimulatedFailureError

    def _done(self, records: list[UserRecord]) -> None:
        now = self._scheduler.now
        for record in records:
            data = record.data.decode()
            self._journal.processed[data] = now
            self._journal.first_processed.setdefault(data, now)

    def _write(self, what: str, about: object = None) -> None:
        self._journal.write(self._shard, what, about, self._reader)

    @contextmanager
    def _called(self, what: str, about: object = None, key: str | None = _ALL) -> Iterator[None]:
        """Writes a call down, with its error and what it overlaps."""
        if any(key == other is not None or _ALL in (key, other) for other in self._running):
            self._write("overlap", what)
        self._running.append(key)
        self._write(what, about)
        try:
            yield
        except (SimulatedFailureError, SparkinesisError, asyncio.CancelledError) as error:
            self._write("raised", (what, type(error).__name__, about))
            raise
        finally:
            self._running.remove(key)


class SimulatedCoroutines(SimulatedProcessor):
    """The same with coroutines for records, some of which are cancelled by their own program."""

    async def process_records(
        self, batch: RecordBatch, checkpointer: Checkpointer | LoopBatch | None = None
    ) -> Any:
        return await Pauses(self._work(batch.records, checkpointer))

    async def process_record(self, record: UserRecord) -> Any:
        return await Pauses(self._work([record], key=record.partition_key))

    def _fail(self) -> None:
        if self._scheduler.rng.random() < 0.5:
            raise asyncio.CancelledError
        super()._fail()


class SimulatedFunction(RecordFunction):
    """A function over records, which tells of itself by a record processor for each shard.

    Its own function makes these.
    """

    def new_processor(self) -> RecordProcessor:
        noting = self.function()
        assert isinstance(noting, SimulatedProcessor)
        by_record = noting.takes_one
        function = noting.process_record if by_record else noting.process_records
        made = RecordFunction(function, self.takes_checkpointer).new_processor()
        return noting.beside(made)


def _shard_of(failed: FailedRecords, journal: Journal) -> str:
    """The shard of failed records; of several streams, the key of its lease, by the records."""
    data = failed.batch.records[0].data.decode()
    streams = (one for one, tag in journal.tags.items() if tag and data.startswith(tag))
    return next((f"{one}:{failed.shard_id}" for one in streams), failed.shard_id)


def on_error(history: History, journal: Journal) -> OnError:
    """The policy of a history; dead letters are noted in the journal.

    Their target fails until faults end: each time, the worker waits for half a minute.
    """
    behaviour = history.behaviour

    def take(failed: FailedRecords) -> None:
        has_faults = journal.scheduler.now < history.duration
        if has_faults and journal.scheduler.rng.random() < behaviour.fail_elsewhere:
            raise SimulatedFailureError
        for record in failed.batch.records:
            journal.dead_letters.add(record.data.decode())
            journal.write(_shard_of(failed, journal), "dead letter", place_of(record))

    policies: dict[Policy, OnError] = {
        "retry": Retry(),
        "skip": Skip(),
        "dead letter": DeadLetter(take),
        "stop": Stop(),
        "retry, then skip": Retry(3, then=Skip()),
        "retry, then dead letter": Retry(2, then=DeadLetter(take)),
    }
    return policies[history.on_error]
