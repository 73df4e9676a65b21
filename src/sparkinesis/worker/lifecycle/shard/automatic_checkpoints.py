"""Automatic checkpoints: when a shard is checkpointed although its processor did not ask for it.

They follow the options ``checkpoint_seconds`` and ``checkpoint_records``. A checkpoint is written
between two calls of ``process_records``, so it covers what was processed without error (and what
``on_error`` has given up), and nothing of a call that failed or has not returned.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.options import WorkerOptions

_AT_ONCE = 0.001
"""Seconds that are not worth a wait: a clock may not show the end of a shorter one."""


class AutomaticCheckpoints:
    """The automatic checkpoints of one shard. For the thread of the shard's consumer.

    Counts from the last checkpoint, whoever asked for it. While the processor has a checkpoint
    prepared, none is written: it would remove the prepared one.
    """

    def __init__(
        self, checkpointer: Checkpointer, options: WorkerOptions, clock: Callable[[], float]
    ) -> None:
        self._checkpointer = checkpointer
        self._seconds = options.checkpoint_seconds
        self._most = options.checkpoint_records
        self.now = clock
        """The time in seconds."""
        self._records = 0
        """The number of user records processed since the last checkpoint."""
        self._since: float | None = None
        """The earliest start of the calls that processed them. (Calls beside each other may end in
        another order than they began in.)"""

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
        left = len(batch.after(self._checkpointer.last))
        if left < len(batch):
            self.clear()
        if left:
            self._records += left
            self._since = since if self._since is None else min(since, self._since)

    def clear(self) -> None:
        """Begin to count: all that was processed is checkpointed, or the shard was reset."""
        self._records, self._since = 0, None

    def write_if_due(self) -> None:
        """Write a checkpoint if one is due. Raises what `Checkpointer.checkpoint` raises."""
        if self.due_in == 0.0:
            self.write()

    def write(self) -> None:
        """Checkpoint what was processed, if `are_on`; at the end of the shard, the end."""
        if self.are_on:
            self._checkpointer.checkpoint()
            self.clear()
