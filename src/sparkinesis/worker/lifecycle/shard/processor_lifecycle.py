"""The record processor of one shard: made and initialized as the shard begins, ended with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from sparkinesis.errors import LeaseLostError, ProcessorError, SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.metrics.catalogue import INITIALIZE_DURATION, SHUTDOWN_DURATION
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.concurrent_delivery import ConcurrentDeliverer
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.lifecycle.shard.starting import move_to, returned_start
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor, make_processor
from sparkinesis.worker.reporting.shard_reporter import ShardReporter
from sparkinesis.worker.sink.sink import ShardSinks


class ProcessorHost(msgspec.Struct, frozen=True):
    """The functions of its shard's consumer that a record processor leads to."""

    request_shutdown: Callable[[], None]
    """Begins a graceful shutdown of the worker."""
    pause: Callable[[], None]
    resume: Callable[[], None]
    wake: Callable[[], None]
    """Has the shard's next step taken now; for any thread."""
    is_ending: Callable[[], bool]
    """Returns True once the shard is being left, or its lease is lost."""
    fail: Callable[[BaseException], None]
    """Ends the worker with an error that every shard would meet."""
    place_at: Callable[[int], ExtendedSequenceNumber | None]
    """Returns the checkpoint that stands for an instant; see `Checkpointer`."""


class ProcessorLifecycle:
    """Makes the record processor of one shard, and makes its first and its last calls.

    For the thread of the shard's consumer. `Deliverer` makes the calls between them.
    """

    def __init__(
        self,
        held: HeldLease,
        settings: ConsumerSettings,
        report: ShardReporter,
        host: ProcessorHost,
    ) -> None:
        self.deliverer: Deliverer | None = None
        """None until the processor is initialized."""
        self.shard_ended_was_called = False
        """True once ``shard_ended`` was called, which may checkpoint everything."""
        self._held = held
        self._settings = settings
        self._report = report
        self._host = host
        self._processor: RecordProcessor | None = None
        self._returned_start: ExtendedSequenceNumber | None = None
        """The start that ``initialize`` returned, if any."""
        self._shard_ended_returned = False
        """True once ``shard_ended`` has returned, and only its automatic checkpoint is left."""

    # --- the first call

    def initialize(self) -> Deliverer:
        """Make the processor, call ``initialize``, and move the shard to the start it returned.

        What has succeeded is not repeated if the rest fails. Raises the errors of all of this.
        """
        if self.deliverer is None:
            self.deliverer = self._begin()
        if self._returned_start is not None:
            lease, checkpointer = self._held.lease, self.deliverer.checkpointer
            move_to(self._returned_start, lease, checkpointer, self._settings)
        return self.deliverer

    def _begin(self) -> Deliverer:
        settings, held, host = self._settings, self._held, self._host
        stream, stream_id = settings.client.address.name, settings.stream
        if self._processor is None:
            self._processor = make_processor(
                settings.factory, by_record=settings.options.concurrency is not None
            )
        measures = settings.measures(held.shard_id)
        sinks = ShardSinks(settings.clock, metrics=settings.metrics, stream=stream)
        checkpointer = Checkpointer(
            held,
            settings.service_time_ms,
            sinks,
            host.place_at,
            clock=settings.clock,
            measures=measures,
            on_reset=host.wake,
        )
        shard = ProcessorShard(
            id=held.shard_id,
            application=settings.application,
            stream=stream,
            stream_id=None if stream_id is None else str(stream_id),
            worker_id=settings.worker_id,
            checkpoint=held.lease.checkpoint,
            pending_checkpoint=held.lease.pending,
            request_shutdown=host.request_shutdown,
            pause=host.pause,
            resume=host.resume,
            commit_pending=checkpointer.commit_pending,
            drop_pending=checkpointer.drop_pending,
            sinks=sinks,
            fencing_token=held.fencing_token,
        )
        returned = measures.call(
            INITIALIZE_DURATION,
            partial(settings.calls.call, self._processor.initialize, shard),
        )
        self._returned_start = returned_start(returned, self._report.place)
        return self._new_deliverer(self._processor, checkpointer)

    def _new_deliverer(self, processor: RecordProcessor, checkpointer: Checkpointer) -> Deliverer:
        deliver: type[Deliverer] | partial[ConcurrentDeliverer] = Deliverer
        if self._settings.options.concurrency is not None:
            if checkpointer.sinks.are_in_use:
                raise ProcessorError(
                    f"The processor of {self._report.place} has made a sink, which does not work "
                    "with the option concurrency: the rows of records that are not checkpointed "
                    "would be stored."
                )
            deliver = partial(ConcurrentDeliverer, wake=self._host.wake)
        return deliver(
            self._held, processor, checkpointer, self._settings, is_ending=self._host.is_ending
        )

    # --- the last calls, and the automatic checkpoints that follow them

    def shutdown_requested(self) -> None:
        """Call ``shutdown_requested`` once: the lease goes to another worker anyway."""
        if self.deliverer is not None and self._call_once(
            "shutdown_requested", self.deliverer.checkpointer
        ):
            self.checkpoint()

    def lease_lost(self) -> None:
        """Call ``lease_lost`` once, whatever it raises."""
        if self.deliverer is not None:
            self._call_once("lease_lost")
            self.deliverer.checkpointer.sinks.close()

    def checkpoint(self) -> None:
        """Write an automatic checkpoint, if these are on, before the lease is released."""
        assert self.deliverer is not None
        try:
            self.deliverer.automatic.write()
        except LeaseLostError as error:
            self._report.checkpoint_refused(error)
        except SparkinesisError as error:
            what = f"The last automatic checkpoint failed on {self._report.place}"
            self._report.task_failed(what, error)

    def shard_ended(self) -> None:
        """Call ``shard_ended``, which must checkpoint the end of the shard.

        Raises its errors, those of the checkpoint, and `SparkinesisError` if there is none. Call it
        again then.
        """
        assert self.deliverer is not None
        self.shard_ended_was_called = True
        checkpointer, automatic = self.deliverer.checkpointer, self.deliverer.automatic
        checkpointer.end()
        if not checkpointer.last.is_shard_end and not self._shard_ended_returned:
            self._call("shard_ended", checkpointer)
        if not checkpointer.last.is_shard_end:
            self._shard_ended_returned = automatic.are_on  # only the checkpoint is repeated
            automatic.write()
        if not checkpointer.last.is_shard_end:
            raise SparkinesisError(
                f"shard_ended returned without a checkpoint on {self._report.place}, so its child "
                "shards cannot begin. Call checkpointer.checkpoint() in shard_ended, which is "
                "called again."
            )
        # This also stores rows that the processor wrote to sinks after its own checkpoint.
        checkpointer.checkpoint()
        checkpointer.sinks.close()

    def _call(self, name: str, *given: object) -> None:
        assert self.deliverer is not None
        method = getattr(self.deliverer.processor, name)
        call = partial(self._settings.calls.call, method, *given)
        self.deliverer.measures.call(SHUTDOWN_DURATION, call)

    def _call_once(self, name: str, *given: object) -> bool:
        """Call a method, and log its error; return True if there was none."""
        try:
            self._call(name, *given)
        except ProcessorError as error:
            self._host.fail(error)
        except BaseException as error:  # noqa: BLE001 - a retry would not help
            self._report.task_failed(f"{name} raised on {self._report.place}", error)
        else:
            return True
        return False
