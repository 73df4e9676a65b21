"""The last calls of a shard's record processor, with the automatic checkpoints that follow them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparkinesis.errors import LeaseLostError, ProcessorError, SparkinesisError
from sparkinesis.metrics.catalogue import SHUTDOWN_DURATION
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.reporting.shard_reporter import ShardReporter


class LastCalls:
    """The last calls of one record processor. For the thread of the shard's consumer."""

    def __init__(
        self,
        deliverer: Deliverer,
        report: ShardReporter,
        fail: Callable[[BaseException], None],
        calls: UserCalls,
    ) -> None:
        """``fail``: ends the worker with an error."""
        self.shard_ended_was_called = False
        """True once ``shard_ended`` was called, which may checkpoint everything."""
        self._shard_ended_returned = False
        """True once ``shard_ended`` has returned, and only its automatic checkpoint is left."""
        self._processor = deliverer.processor
        self._checkpointer = deliverer.checkpointer
        self._automatic = deliverer.automatic
        self._name = deliverer.name
        self._measures = deliverer.measures
        self._report = report
        self._fail = fail
        self._calls = calls

    def shutdown_requested(self) -> None:
        """Call ``shutdown_requested`` once: the lease goes to another worker anyway."""
        if self._call_once("shutdown_requested", self._checkpointer):
            self.checkpoint()

    def lease_lost(self) -> None:
        """Call ``lease_lost`` once, whatever it raises."""
        self._call_once("lease_lost")
        self._checkpointer.sinks.close()

    def checkpoint(self) -> None:
        """Write an automatic checkpoint, if these are on, before the lease is released."""
        try:
            self._automatic.write()
        except LeaseLostError as error:
            self._report.checkpoint_refused(error)
        except SparkinesisError as error:
            self._report.task_failed(f"The last automatic checkpoint failed on {self._name}", error)

    def shard_ended(self) -> None:
        """Call ``shard_ended``, which must checkpoint the end of the shard.

        Raises its errors, those of the checkpoint, and `SparkinesisError` if there is none. Call it
        again then.
        """
        self.shard_ended_was_called = True
        checkpointer = self._checkpointer
        checkpointer.end()
        if not checkpointer.last.is_shard_end and not self._shard_ended_returned:
            self._call("shard_ended", checkpointer)
        if not checkpointer.last.is_shard_end:
            self._shard_ended_returned = self._automatic.are_on  # only the checkpoint is repeated
            self._automatic.write()
        if not checkpointer.last.is_shard_end:
            raise SparkinesisError(
                f"shard_ended returned without a checkpoint on {self._name}, so its child shards "
                "cannot begin. Call checkpointer.checkpoint() in shard_ended, which is called "
                "again."
            )
        # This also stores rows that the processor wrote to sinks after its own checkpoint.
        checkpointer.checkpoint()
        checkpointer.sinks.close()

    def _call(self, name: str, *given: object) -> None:
        method = getattr(self._processor, name)
        self._measures.call(SHUTDOWN_DURATION, partial(self._calls.call, method, *given))

    def _call_once(self, name: str, *given: object) -> bool:
        """Call a method, and log its error; return True if there was none."""
        try:
            self._call(name, *given)
        except ProcessorError as error:
            self._fail(error)
        except BaseException as error:  # noqa: BLE001 - a retry would not help
            self._report.task_failed(f"{name} raised on {self._name}", error)
        else:
            return True
        return False
