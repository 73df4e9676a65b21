"""A shard consumer: one shard, one acquisition of its lease, one record processor."""

# Its life is the table in `states.py`, and it takes it step by step: a step runs the task of the
# present state once, and says how long to wait for the next. It holds a thread only while a step
# runs; what wakes it before its time is a page (by its fetcher), a call that has ended, a reset, or
# a request of the worker.
#
# - A request to end (`request`) may come from any thread at any time; it only replaces the reason
#   and wakes the consumer, which looks at the reason between two tasks. A higher reason replaces a
#   lower one, never the other way: a shard that has ended must still call `lease_lost` and not
#   `shard_ended` if its lease is lost meanwhile.
# - With a lost lease, fetching ends at once, even during a call: only one subscription of a
#   consumer and a shard may live, and the next owner's would be disturbed.
# - A task that fails is run again, with growing pauses, whatever it raised: a `SystemExit` of the
#   user's code ended the thread once, and left the fetching behind. Only a mistake in the
#   processor's class ends the worker.
# - A shard that is left at its end, because a child's lease cannot be made yet while the worker
#   shuts down, lets its processor checkpoint before. It got only `lease_lost` once, and its
#   records came again on the next worker.

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from sparkinesis.errors import (
    ConsumerNotFoundError,
    LeaseLostError,
    ProcessorError,
    SparkinesisError,
    StreamNotFoundError,
)
from sparkinesis.events import LeaseEnd
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.status import ShardState
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import LATEST
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.batcher import Batcher
from sparkinesis.worker.lifecycle.shard.fetching import ShardFetching
from sparkinesis.worker.lifecycle.shard.processing import IDLE, Processing
from sparkinesis.worker.lifecycle.shard.processor_lifecycle import (
    ProcessorHost,
    ProcessorLifecycle,
)
from sparkinesis.worker.lifecycle.shard.reaction import backoff
from sparkinesis.worker.lifecycle.shard.shard_view import ShardView
from sparkinesis.worker.lifecycle.shard.starting import start_of
from sparkinesis.worker.lifecycle.shard.states import (
    TABLE,
    Ending,
    ShutdownReason,
    Task,
    after_task,
    before_task,
)
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.retrieval.ahead import OpenRetrieval


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
        self.state = ShardState.WAITING_ON_PARENT_SHARDS
        self.report = settings.reporter(held.shard_id)
        self._settings = settings
        self._worker = worker
        self._work = settings.consumers.new_work(self._run, log_place.enter)
        self._lock = threading.Lock()
        self._ending = Ending()
        """Replaced within the lock."""
        # The way of a page: fetched, made a batch, delivered.
        self.fetching = ShardFetching(
            held.shard_id, settings, worker.open_retrieval, self._work, mark=held.lease.mark
        )
        self.batcher = Batcher(
            self.fetching, settings, held.lease.hash_range if held.lease.parent_ids else None
        )
        self.view = ShardView(held, settings, self.fetching, self.batcher)
        self._processing: Processing | None = None
        """None until the processor is initialized."""
        self._processor = ProcessorLifecycle(
            held,
            settings,
            self.report,
            ProcessorHost(
                request_shutdown=self._ask_for_shutdown,
                pause=self.pause,
                resume=self.resume,
                wake=self.wake,
                is_ending=self._is_ending,
                fail=worker.fail,
                place_at=partial(worker.place_at, held.shard_id),
            ),
        )

    def request(self, reason: ShutdownReason) -> None:
        """End this consumer. Only a higher reason replaces an earlier one."""
        with self._lock:
            self._ending = self._ending.asked(reason)
        if reason is ShutdownReason.LEASE_LOST:
            self.fetching.end()
        self.wake()

    def pause(self) -> None:
        """Fetch and deliver nothing, from the end of the present call on, until `resume`."""
        self.fetching.pause()
        self.wake()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.fetching.resume()
        self.wake()

    def start(self) -> None:
        """Begin to take steps, in a thread of the pool."""
        self._work.start()

    def wake(self) -> None:
        """Run the next step now, without waiting for its time."""
        self._work.wake()

    @property
    def has_ended(self) -> bool:
        """True once it is complete, or has died of an error in its own code."""
        return self.is_complete or self._work.has_ended

    @property
    def is_complete(self) -> bool:
        return self.state is ShardState.SHUTDOWN_COMPLETE

    @property
    def has_read_range(self) -> bool:
        """True once the shard is read to the end of a replay's range."""
        return self.view.read_to is ShutdownReason.REQUESTED

    # --- its steps

    def _run(self) -> float | None:
        """Take a step; return the seconds until the next one, or None after the last."""
        has_ended = True
        try:
            pause = self.run_task()
            has_ended = self.is_complete
        finally:
            if has_ended:
                self.batcher.close()
                self._worker.note_end()
        return None if has_ended else pause

    def run_task(self) -> float:
        """Run the task of the current state once; return the seconds until the next step."""
        is_paused = self.fetching.paused_since is not None
        self.state = before_task(self.state, self._ending.reason, is_paused=is_paused)
        task = TABLE[self.state].task
        if task is None:
            self._leave()
            return 0.0
        self.view.tasks.begin(task)
        try:
            pause = self._run_once(task)
        except LeaseLostError as error:
            self.held.lose_if_expired()
            self.held.lose(str(error))
            self.request(ShutdownReason.LEASE_LOST)
            return 0.0
        except BaseException as error:  # noqa: BLE001 - nor may a user's sys.exit() end its thread
            return self._task_failed(task, error)
        finally:
            self.view.tasks.end()
        if pause is not None:
            return pause
        self.view.tasks.succeeded()
        self.report.forget_failure()
        self.state = after_task(self.state, self._ending.reason)
        return 0.0

    def _run_once(self, task: Task) -> float | None:
        """Run a task; return None if it is done, or the seconds until it is to run again."""
        match task:
            case Task.PROCESS:
                return self._process()
            case Task.BLOCK_ON_PARENT:
                return self._block_on_parent()
            case Task.INITIALIZE:
                self._initialize()
                return None
            case Task.HOLD:
                return self._hold()
            case Task.SHUTDOWN_NOTIFICATION:
                return self._notify_of_shutdown()
            case Task.SHUTDOWN:
                return self._shut_down()

    def _is_ending(self) -> bool:
        return self._ending.reason is not None or not self.held.is_held()

    def _ask_for_shutdown(self) -> None:
        self._worker.request_shutdown()
        # Stop at once: more would be delivered before the worker asks this consumer.
        self.request(ShutdownReason.REQUESTED)

    def _task_failed(self, task: Task, error: BaseException) -> float:
        stream = self._settings.stream
        problem: SparkinesisError | None = None
        if is_doubted := isinstance(error, StreamNotFoundError):
            self._worker.doubt_stream(stream)
        elif stream is None and isinstance(error, ConsumerNotFoundError):
            self._worker.doubt_stream(None)  # a stream that is deleted takes its consumers along
        if isinstance(error, ProcessorError):
            self._worker.fail(error)  # logs and counts it
        elif not is_doubted or stream is None:  # of several, one report says it for all shards
            problem = error if isinstance(error, SparkinesisError) else None
            what = f"The task {task.value!r} failed on {self.report.place} and will be retried"
            self.report.task_failed(what, error)
        self.view.tasks.failed(task, problem)
        if task is Task.SHUTDOWN and self._ending.is_leaving:
            self._leave_its_end()
            return 0.0
        return backoff(self._settings.options.task_backoff, self.view.tasks.failures)

    def _leave(self, why: LeaseEnd | None = None) -> None:
        """Release the lease, so that another worker takes the shard, then shut down."""
        self._release(why)
        self.request(ShutdownReason.LEASE_LOST)

    def _leave_its_end(self) -> None:
        """Leave the end of the shard to its next owner; let the processor checkpoint before."""
        is_at_end = self._ending.reason is ShutdownReason.SHARD_END and self.held.is_held()
        if is_at_end and not self._processor.shard_ended_was_called:
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
        options = self._settings.options
        if not options.parents_first or self._worker.are_finished(parents):
            return None
        return options.parent_poll_interval

    def _initialize(self) -> None:
        settings, options = self._settings, self._settings.options
        self.batcher.expect_page()
        if self.held.lease.position() is LATEST:
            # A KCL wrote this LATEST. From now on it means this instant, also after a restart.
            self.held.fix_instant(settings.service_time_ms())
        bound_ms: int | None = None
        if (skip := options.skip_older_than) is not None:
            bound_ms = settings.skip_before(settings.service_time_ms() if skip else 0)
        self.view.deliverer = deliverer = self._processor.initialize()
        on_page = self.view.tasks.succeeded
        self._processing = Processing(self.held, self.batcher, deliverer, settings, on_page)
        lease = self.held.lease  # the processor may have moved it, or committed what was pending
        start, unread = start_of(
            lease, settings.initial, settings.started_ms, bound_ms, deaggregate=options.deaggregate
        )
        self.batcher.begin(start, unread)
        self.report.started(start, lease.checkpoint)

    def _process(self) -> float | None:
        assert self._processing is not None
        following = self._processing.step()
        if self._stop_if_asked():
            return None
        self.view.read_to = following.end
        if following.end is not None:
            self.request(following.end)
        return following.pause

    def _hold(self) -> float | None:
        assert self._processing is not None
        if not self.fetching.is_paused:
            return None
        pause = self._processing.hold()
        return None if self._stop_if_asked() else pause

    def _stop_if_asked(self) -> bool:
        """Leave the shard if ``on_error`` stops it; return True if it does."""
        error = self.view.stopped_by
        if error is None:
            return False
        self.report.stopped(error)
        self._processor.checkpoint()
        self._leave(LeaseEnd.STOPPED)
        return True

    def _notify_of_shutdown(self) -> float | None:
        self.batcher.stop()
        if self._processing is not None and self._has_open_calls():
            return self._processing.checkpoint_meanwhile()
        self._processor.shutdown_requested()
        return None

    def _has_open_calls(self) -> bool:
        """Return True while calls for records run; each that ends wakes this consumer."""
        deliverer = self._processor.deliverer
        return deliverer is not None and not deliverer.settle()

    def _shut_down(self) -> float | None:
        self.batcher.stop()
        if self._has_open_calls():
            return IDLE
        if self._ending.reason is ShutdownReason.SHARD_END and self.held.is_held():
            return self._end_shard()
        self._processor.lease_lost()
        self._release()
        return None

    def _end_shard(self) -> float | None:
        """Create the children's leases, call ``shard_ended``, then release the lease."""
        end = self.batcher.end
        assert end is not None
        if not self._worker.create_child_leases(self.held, end.children, self.batcher.shard_end):
            if self._ending.is_leaving:
                self._leave_its_end()
                return 0.0
            return self._settings.options.task_backoff
        self._processor.shard_ended()
        self.report.ended(
            [child.id for child in end.children], self.view.records, rest_is_lost=end.rest_is_lost
        )
        self._release(LeaseEnd.SHARD_FINISHED)
        return None
