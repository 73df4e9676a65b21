"""Automatic checkpoints: when a shard is checkpointed although its processor did not ask for it.

They follow the options ``checkpoint_seconds`` and ``checkpoint_records``. A checkpoint is written
between two calls of ``process_records``, so it covers what was processed without error (and what
``on_error`` has given up), and nothing of a call that failed or has not returned.
"""

from __future__ import annotations

from sparkinesis.errors import LeaseLostError, SparkinesisError
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.reaction import backoff
from sparkinesis.worker.reporting.shard_reporter import ShardReporter

_AT_ONCE = 0.001
"""Seconds that are not worth a wait: a clock may not show the end of a shorter one."""


class AutomaticCheckpoints:
    """The automatic checkpoints of one shard. For the thread of the shard's consumer.

    Counts from the last checkpoint, whoever asked for it. While the processor has a checkpoint
    prepared, none is written: it would remove the prepared one.
    """

    def __init__(
        self, checkpointer: Checkpointer, settings: ConsumerSettings, report: ShardReporter
    ) -> None:
        self.refused_since: float | None = None
        """The time since which `write_if_due` fails; None: the last one did not. For any thread."""
        self.now = settings.checkpoint_clock
        """Returns the time in seconds."""
        self._checkpointer = checkpointer
        self._settings = settings
        self._report = report
        self._seconds = settings.options.checkpoint_seconds
        self._most = settings.options.checkpoint_records
        self._failures = 0
        """The failures of `write_if_due` since its last success."""
        self._records = 0
        """The number of user records processed since the last checkpoint."""
        self._since: float | None = None
        """The earliest start of the calls that processed them. (Calls that run at the same time may
        end in another order than they began in.)"""

    @property
    def are_on(self) -> bool:
        """True if an option switches them on, and no checkpoint is prepared."""
        is_wanted = self._seconds is not None or self._most is not None
        return is_wanted and not self._checkpointer.is_prepared

    @property
    def room(self) -> int | None:
        """The most records that may be processed before the next checkpoint; None: any number."""
        if self._most is None or not self.are_on:
            return None
        return max(1, self._most - self._records)

    @property
    def due_in(self) -> float | None:
        """The seconds until the next checkpoint; None if none will be due without more records."""
        if not self.are_on:
            return None
        if self._checkpointer.sinks.is_due or self._records >= (self._most or float("inf")):
            return 0.0
        if self._since is None or self._seconds is None:
            return None
        left = self._since + self._seconds - self.now()
        return left if left > _AT_ONCE else 0.0

    def processed(self, batch: RecordBatch, since: float) -> None:
        """Note a batch that was processed without error, or given up.

        since: the time, by `now`, at which the call began.
        """
        rest = batch.after(self._checkpointer.last)
        left = len(rest)
        if rest is not batch:
            self.clear()
        if left:
            self._records += left
            self._since = since if self._since is None else min(since, self._since)

    def clear(self) -> None:
        """Begin to count: all that was processed is checkpointed, or the shard was reset."""
        self._records, self._since = 0, None

    def write_if_due(self) -> float | None:
        """Write a checkpoint if one is due; return the seconds to wait if that failed.

        Until it succeeds, no more records may be processed: more than the options allow would have
        to be processed again. Raises `LeaseLostError`.
        """
        try:
            if self.due_in == 0.0:
                self.write()
        except LeaseLostError:
            raise
        except SparkinesisError as error:
            self._report.task_failed(
                f"An automatic checkpoint failed on {self._report.place}; no more records are "
                "processed until it succeeds",
                error,
            )
            if not self._failures:
                self.refused_since = self._settings.clock()
            self._failures += 1
            return backoff(self._settings.options.task_backoff, self._failures)
        self._failures, self.refused_since = 0, None
        return None

    def write(self) -> None:
        """Checkpoint what was processed, if `are_on`; at the end of the shard, the end."""
        if self.are_on:
            self._checkpointer.checkpoint()
            self.clear()
