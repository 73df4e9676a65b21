"""A shard consumer: one shard, one acquisition of its lease, one record processor.

Its life is the table in `states.py`. A consumer runs step by step: a step
runs the task of the present state once, and says how long to wait for the next. It holds a thread
only while a step runs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from sparkinesis.errors import LeaseLostError, ProcessorError, SparkinesisError, StreamNotFoundError
from sparkinesis.events import LeaseEnd
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.metrics.catalogue import INITIALIZE_DURATION
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import LATEST
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.concurrent_delivery import ConcurrentDeliverer
from sparkinesis.worker.lifecycle.shard.delivery import IDLE, Deliverer
from sparkinesis.worker.lifecycle.shard.intake import Intake
from sparkinesis.worker.lifecycle.shard.last_calls import LastCalls
from sparkinesis.worker.lifecycle.shard.own_start import move_to, returned_start
from sparkinesis.worker.lifecycle.shard.reaction import backoff
from sparkinesis.worker.lifecycle.shard.standing import (
    TOLD_AFTER,
    Reading,
    Standstill,
    longest,
    millis_behind,
)
from sparkinesis.worker.lifecycle.shard.starting import start_of
from sparkinesis.worker.lifecycle.shard.states import (
    TABLE,
    Ending,
    ShutdownReason,
    Task,
    after_task,
    before_task,
)
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor, make_processor
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.retrieval.ahead import OpenRetrieval
from sparkinesis.worker.retrieval.step_pool import Work
from sparkinesis.worker.sink.sink import ShardSinks


class WorkerHooks(msgspec.Struct, frozen=True):
    """The functions of its worker that a shard consumer calls."""

    are_finished: Callable[[Sequence[str]], bool]
    """Returns True if the shards of all these lease keys are finished, or never had leases. Raises
    service errors."""
    create_child_leases: Callable[[HeldLease, Sequence[Shard], ShardEnd], bool]
    """Creates leases for a finished shard's children; False: not yet, call again. Raises service
    errors."""
    open_retrieval: OpenRetrieval
    """Starts to fetch a shard."""
    place_at: Callable[[str, int], ExtendedSequenceNumber | None]
    """Returns the checkpoint to write in a shard for an instant (epoch ms), where a Java KCL may
    read it; None: the instant itself. Raises service errors."""
    doubt_stream: Callable[[StreamIdentifier | None], None]
    """Takes note that one of several streams no longer exists, by an error of its shard."""
    request_shutdown: Callable[[], None]
    """Begins a graceful shutdown of the worker."""
    is_shutting_down: Callable[[], bool]
    """Returns True once a shutdown of the worker was requested."""
    fail: Callable[[BaseException], None]
    """Ends the worker with an error that every shard would meet: a wrong record processor."""
    note_end: Callable[[], None]
    """Takes note that a consumer has ended."""


class ShardConsumer:
    """Consumes one shard. `run_task` is for one thread at a time; the methods above are for any."""

    def __init__(
        self,
        held: HeldLease,
        settings: ConsumerSettings,
        worker: WorkerHooks,
        log_place: LogPlace,
    ) -> None:
        self.held = held
        self.shard_id = held.shard_id
        self.stream = settings.client.address.name
        self.state = ShardState.WAITING_ON_PARENT_SHARDS
        self.intake = Intake(
            held.shard_id,
            held.lease.hash_range if held.lease.parent_ids else None,
            settings,
            worker.open_retrieval,
            self.wake,
            mark=held.lease.mark,
        )
        self._settings = settings
        self._options = settings.options
        self._worker = worker
        self._measures = settings.measures(held.shard_id)
        self._work = settings.consumers.new_work(self._run, log_place.enter)
        self._lock = threading.Lock()
        self._ending = Ending()
        """Replaced within the lock."""
        self._processor: RecordProcessor | None = None
        self._deliverer: Deliverer | None = None
        self._last_calls: LastCalls | None = None
        """Both are None until the processor is initialized."""
        self._own_start: ExtendedSequenceNumber | None = None
        """The start that the processor's ``initialize`` returned, if any."""
        self._step: tuple[Task, float] | None = None
        """The task that runs now, and since when; None between two steps."""
        self._failing: tuple[Task, float] | None = None
        """The task that failed last, and since when tasks fail; None: the last one did not."""
        self.problem: tuple[SparkinesisError, float] | None = None
        """The error for which the last task failed, and since when tasks fail; None: none did."""
        self.has_read_range = False
        """True once the shard is read to the end of a replay's range."""
        self._failures = 0
        self.report = settings.reporter(held.shard_id)
        self._tasks: dict[Task, Callable[[], float | None]] = {
            Task.BLOCK_ON_PARENT: self._block_on_parent,
            Task.INITIALIZE: self._initialize,
            Task.PROCESS: self._process,
            Task.HOLD: self._hold,
            Task.SHUTDOWN_NOTIFICATION: self._notify_of_shutdown,
            Task.SHUTDOWN: self._shut_down,
        }
        """Each task returns None when it is done, or the seconds until it is to run again."""

    def __str__(self) -> str:
        return self._settings.describe_shard(self.shard_id)

    def request(self, reason: ShutdownReason) -> None:
        """End this consumer. Only a higher reason replaces an earlier one."""
        with self._lock:
            self._ending = self._ending.asked(reason)
        if reason is ShutdownReason.LEASE_LOST:
            # Stop at once, even during a call: an open subscription would disturb the next owner's.
            self.intake.end_reading()
        self.wake()

    def pause(self) -> None:
        """Fetch and deliver nothing, from the end of the present call on, until `resume`."""
        self.intake.pause()
        self.wake()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.intake.resume()
        self.wake()

    def start(self) -> None:
        """Begin to take steps, in a thread of the pool."""
        self._work.start()

    def wake(self, by: Work | None = None) -> None:
        """Run the next step now, without waiting for its time; ``by``: as in `Work.wake`."""
        self._work.wake(by)

    @property
    def has_ended(self) -> bool:
        """True once it is complete, or has died of an error in its own code."""
        return self.is_complete or self._work.has_ended

    @property
    def is_complete(self) -> bool:
        return self.state is ShardState.SHUTDOWN_COMPLETE

    @property
    def processing_since(self) -> float | None:
        """The start of the current call of ``process_records`` by the worker's clock; or None."""
        return self._deliverer.processing_since if self._deliverer is not None else None

    def millis_behind(self, now: float) -> int | None:
        """Return the lag, which is at least the age of what is held; None if it is not known.

        It is not known of a paused shard, which grows old unseen and by intent, nor at the end of
        the shard: the next records are in other shards, which may have no leases yet.
        """
        intake, deliverer = self.intake, self._deliverer
        if self._ending.reason is ShutdownReason.SHARD_END or intake.is_paused:
            return None
        oldest_at = None if deliverer is None else deliverer.oldest_at
        if oldest_at is None:
            oldest_at = intake.waiting_since
        heard_at = None if intake.at_end else intake.heard_at
        return millis_behind(
            Reading(
                intake.millis_behind_latest,
                None if heard_at is None else now - heard_at,
                None if oldest_at is None else now - oldest_at,
            ),
            self._options.idle_time,
        )

    @property
    def standstill(self) -> Standstill | None:
        """Since when the shard makes no progress although something of it waits, and why.

        None: nothing waits. Each call of a processor, and each task that runs, is one for a moment.
        """
        step, failing, deliverer = self._step, self._failing, self._deliverer
        front = None if deliverer is None else deliverer.front
        refused_since = None if deliverer is None else deliverer.refused_since
        found = longest(
            None if front is None else Standstill(front.since, front),
            None
            if refused_since is None
            else Standstill(refused_since, "automatic checkpoints fail again and again"),
            None
            if failing is None
            else Standstill(failing[1], f"the task {failing[0].value!r} fails again and again"),
        )
        if found is None and step is not None:
            return Standstill(step[1], f"the task {step[0].value!r} has not ended")
        return found

    def status(self, key: str, now: float) -> ShardStatus:
        """Return the shard's state at a time by the worker's clock; ``key``: of its lease."""
        lag, standstill = self.millis_behind(now), self.standstill
        standing_for = None if standstill is None else max(0.0, now - standstill.since)
        is_long = standing_for is not None and standing_for >= TOLD_AFTER
        return ShardStatus(
            self.shard_id,
            self.state,
            lag,
            None if (since := self.processing_since) is None else now - since,
            self.records,
            self.intake.dropped,
            self.stream,
            key,
            str(self.held.lease.checkpoint),
            self.checkpoint_age,
            None if (since := self.intake.paused_since) is None else now - since,
            None if lag is None else self.intake.millis_behind_latest,
            standing_for,
            str(standstill.why) if standstill is not None and is_long else "",
        )

    @property
    def records(self) -> int:
        """The number of user records processed, without those of failed calls."""
        return self._deliverer.records if self._deliverer is not None else 0

    @property
    def checkpoint_age(self) -> float | None:
        """The age of the oldest delivery without a checkpoint; None before the first delivery."""
        return self._deliverer.checkpointer.age if self._deliverer is not None else None

    @property
    def stopped_by(self) -> BaseException | None:
        """The error for which ``on_error`` stopped the shard; None if it did not."""
        return self._deliverer.stopped_by if self._deliverer is not None else None

    def _run(self) -> float | None:
        """Take a step; return the seconds until the next one, or None after the last."""
        has_ended = True
        try:
            pause = self.run_task()
            has_ended = self.is_complete
        finally:
            if has_ended:
                self.intake.close()
                self._worker.note_end()
        return None if has_ended else pause

    def run_task(self) -> float:
        """Run the task of the current state once; return the seconds until the next step."""
        self.state = before_task(self.state, self._ending.reason, is_paused=self.intake.is_paused)
        task = TABLE[self.state].task
        if task is None:
            self._leave()
            return 0.0
        self._step = task, self._settings.clock()
        try:
            pause = self._tasks[task]()
        except LeaseLostError as error:
            self.held.lose_if_expired()
            self.held.lose(str(error))
            self.request(ShutdownReason.LEASE_LOST)
            return 0.0
        except BaseException as error:  # noqa: BLE001 - nor may a user's sys.exit() end its thread
            return self._task_failed(task, error)
        finally:
            self._step = None
        if pause is not None:
            return pause
        self._failures, self.problem, self._failing = 0, None, None
        self.report.forget_failure()
        self.state = after_task(self.state, self._ending.reason)
        return 0.0

    def _is_ending(self) -> bool:
        return self._ending.reason is not None or not self.held.is_held()

    def _ask_for_shutdown(self) -> None:
        self._worker.request_shutdown()
        # Stop at once: more would be delivered before the worker asks this consumer.
        self.request(ShutdownReason.REQUESTED)

    def _task_failed(self, task: Task, error: BaseException) -> float:
        stream = self._settings.stream
        since = self._settings.clock() if self._failing is None else self._failing[1]
        self._failing = task, since
        if is_doubted := isinstance(error, StreamNotFoundError):
            self._worker.doubt_stream(stream)
        if isinstance(error, ProcessorError):
            self._worker.fail(error)  # logs and counts it
        elif not is_doubted or stream is None:  # one of several is told of once, for all shards
            if isinstance(error, SparkinesisError):
                self.problem = error, since if self.problem is None else self.problem[1]
            what = f"The task {task.value!r} failed on {self} and will be retried"
            self.report.task_failed(what, error)
        if task is Task.SHUTDOWN and self._ending.is_leaving:
            self._leave_its_end()
            return 0.0
        self._failures += 1
        return backoff(self._options.task_backoff, self._failures)

    def _leave(self, why: LeaseEnd | None = None) -> None:
        """Release the lease, so that another worker takes the shard, then shut down."""
        self._release(why)
        self.request(ShutdownReason.LEASE_LOST)

    def _leave_its_end(self) -> None:
        """Leave the end of the shard to its next owner; let the processor checkpoint before."""
        is_at_end = self._ending.reason is ShutdownReason.SHARD_END and self.held.is_held()
        if is_at_end and not (self._last_calls and self._last_calls.shard_ended_was_called):
            self._notify_of_shutdown()
        self._leave()

    def _release(self, why: LeaseEnd | None = None) -> None:
        """Release the lease. Without ``why``: for the reason why the consumer was asked to end."""
        if why is None:
            why = LeaseEnd.HANDED_OVER
            if self.has_read_range:
                why = LeaseEnd.RANGE_READ
            elif self._worker.is_shutting_down():
                why = LeaseEnd.SHUTDOWN
            elif self._settings.stream is not None and self.held.handoff_to is None:
                why = LeaseEnd.STREAM_LEFT
        with contextlib.suppress(SparkinesisError):  # the lease's event has the error
            self.held.release(why)

    def _block_on_parent(self) -> float | None:
        parents = self.held.lease.parent_keys
        if not self._options.parents_first or self._worker.are_finished(parents):
            return None
        return self._options.parent_poll_interval

    def _initialize(self) -> None:
        settings, options = self._settings, self._options
        lease = self.held.lease
        self.intake.wait_for_page()
        if lease.position() is LATEST:
            # A KCL wrote this LATEST. From now on it means this instant, also after a restart.
            self.held.fix_instant(settings.service_time_ms())
        bound_ms: int | None = None
        if (skip := options.skip_older_than) is not None:
            bound_ms = settings.skip_before(settings.service_time_ms() if skip else 0)
        deliverer = self._deliverer
        if deliverer is None:
            deliverer = self._begin_processor()
        if self._own_start is not None:
            move_to(self._own_start, self.held.lease, deliverer.checkpointer, settings)
        lease = self.held.lease  # the processor may have moved it, or committed what was pending
        start, unread = start_of(
            lease, settings.initial, settings.started_ms, bound_ms, deaggregate=options.deaggregate
        )
        self.intake.begin(start, unread)
        self.report.started(start, lease.checkpoint)

    def _begin_processor(self) -> Deliverer:
        """Make the record processor and call its ``initialize``, which is repeated if it raises."""
        settings, lease, stream = self._settings, self.held.lease, self._settings.stream
        if self._processor is None:
            self._processor = make_processor(
                settings.factory, by_record=self._options.concurrency is not None
            )
        sinks = ShardSinks(settings.clock, metrics=settings.metrics, stream=self.stream)
        checkpointer = Checkpointer(
            self.held,
            settings.service_time_ms,
            sinks,
            partial(self._worker.place_at, self.shard_id),
            clock=settings.clock,
            measures=self._measures,
            on_reset=self.wake,
        )
        shard = ProcessorShard(
            id=self.shard_id,
            application=settings.application,
            stream=self.stream,
            stream_id=None if stream is None else str(stream),
            worker_id=settings.worker_id,
            checkpoint=lease.checkpoint,
            pending_checkpoint=lease.pending,
            request_shutdown=self._ask_for_shutdown,
            pause=self.pause,
            resume=self.resume,
            commit_pending=checkpointer.commit_pending,
            drop_pending=checkpointer.drop_pending,
            sinks=sinks,
            fencing_token=self.held.fencing_token,
        )
        returned = self._measures.call(
            INITIALIZE_DURATION,
            partial(settings.calls.call, self._processor.initialize, shard),
        )
        self._own_start = returned_start(returned, str(self))
        deliverer = self._new_deliverer(self._processor, checkpointer)
        self._last_calls = LastCalls(deliverer, self.report, self._worker.fail, settings.calls)
        self._deliverer = deliverer
        return deliverer

    def _new_deliverer(self, processor: RecordProcessor, checkpointer: Checkpointer) -> Deliverer:
        deliver: type[Deliverer] | partial[ConcurrentDeliverer] = Deliverer
        if self._options.concurrency is not None:
            if checkpointer.sinks.are_in_use:
                raise ProcessorError(
                    f"The processor of {self} has made a sink, which does not work with the option "
                    "concurrency: the rows of records that are not checkpointed would be stored."
                )
            deliver = partial(ConcurrentDeliverer, wake=self.wake)
        return deliver(
            self.held,
            self.intake,
            processor,
            checkpointer,
            self._settings,
            is_ending=self._is_ending,
        )

    def _process(self) -> float | None:
        assert self._deliverer is not None
        following = self._deliverer.process()
        if self._stop_if_asked():
            return None
        self.has_read_range = following.end is ShutdownReason.REQUESTED
        if following.end is not None:
            self.request(following.end)
        return following.pause

    def _hold(self) -> float | None:
        assert self._deliverer is not None
        if not self.intake.is_paused:
            return None
        pause = self._deliverer.hold()
        return None if self._stop_if_asked() else pause

    def _stop_if_asked(self) -> bool:
        """Leave the shard if ``on_error`` stops it; return True if it does."""
        assert self._deliverer is not None
        assert self._last_calls is not None
        if self._deliverer.stopped_by is None:
            return False
        self.report.stopped(self._deliverer.stopped_by)
        self._last_calls.checkpoint()
        self._leave(LeaseEnd.STOPPED)
        return True

    def _notify_of_shutdown(self) -> float | None:
        self.intake.stop()
        if self._deliverer is not None and self._has_open_calls():
            return self._deliverer.checkpoint_meanwhile()
        if self._last_calls is not None:
            self._last_calls.shutdown_requested()
        return None

    def _has_open_calls(self) -> bool:
        """Return True while calls for records run; each that ends wakes this consumer."""
        return self._deliverer is not None and not self._deliverer.settle()

    def _shut_down(self) -> float | None:
        self.intake.stop()
        if self._has_open_calls():
            return IDLE
        if self._ending.reason is ShutdownReason.SHARD_END and self.held.is_held():
            return self._end_shard()
        if self._last_calls is not None:
            self._last_calls.lease_lost()
        self._release()
        return None

    def _end_shard(self) -> float | None:
        """Create the children's leases, call ``shard_ended``, then release the lease."""
        assert self._last_calls is not None
        intake = self.intake
        if not self._worker.create_child_leases(self.held, intake.children, intake.shard_end):
            if self._ending.is_leaving:
                self._leave_its_end()
                return 0.0
            return self._options.task_backoff
        self._last_calls.shard_ended()
        self.report.ended(
            [child.id for child in intake.children], self.records, rest_is_lost=intake.rest_is_lost
        )
        self._release(LeaseEnd.SHARD_FINISHED)
        return None
