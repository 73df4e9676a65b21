"""What a user writes: a record processor, and what it is told about its shard."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa

from sparkinesis.errors import ProcessorError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.public import public
from sparkinesis.worker.sink.plan import SinkPlan
from sparkinesis.worker.sink.sink import DEFAULT_MAX_AGE, DEFAULT_MAX_BYTES, ParquetSink, ShardSinks
from sparkinesis.worker.sink.storage import open_storage
from sparkinesis.worker.user_methods import made_by, refuse_asynchronous, refuse_factory

if TYPE_CHECKING:
    from sparkinesis.worker.batch import RecordBatch
    from sparkinesis.worker.checkpointer import Checkpointer


@public
@dataclass(frozen=True)
class ProcessorShard:
    """The shard that a record processor was made for."""

    id: str
    application: str
    stream: str
    worker_id: str
    checkpoint: ExtendedSequenceNumber
    """Where the shard stands: what comes after it is about to be delivered."""
    pending_checkpoint: PendingCheckpoint | None = None
    """A checkpoint that was prepared and never made: make it good, or roll it back."""
    request_shutdown: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Asks the whole application's worker to shut down gracefully; returns at once."""
    sinks: ShardSinks = field(default_factory=ShardSinks, repr=False, compare=False)
    """Those that `sink` made."""

    def sink(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_age: float = DEFAULT_MAX_AGE,
        filesystem: object | None = None,
        compression: str | None = "zstd",
    ) -> ParquetSink:
        """A sink for rows of this shard: Parquet files, stored before each checkpoint.

        To be called in `initialize`. Nothing is written by it.

        path: a local directory, or a URI that pyarrow knows (file, s3, s3a, gs, abfs, hdfs) or that
        fsspec does, if that is installed; with ``filesystem``, a path within it.
        partition_by: columns (of integers, booleans, strings or dates) that make directories
        ``name=value`` as Spark's do, and are not in the files.
        max_bytes, max_age: the sink is due when it holds as many bytes (in memory; a file has
        fewer) or a row for as many seconds.
        filesystem: of pyarrow or fsspec, with credentials and settings of its own.
        compression: the codec's name, as Parquet has it; None for none.

        Raises `OptionError` for what cannot be used, and `SinkUnavailableError` if the storage's
        client cannot be made.
        """
        plan = SinkPlan(schema, partition_by, max_bytes, max_age, compression)
        labels = {
            "application": self.application,
            "stream": self.stream,
            "shard": self.id,
            "worker": self.worker_id,
        }
        return self.sinks.open(plan, open_storage(path, filesystem), labels)


@public
class RecordProcessor:
    """Processes the records of one shard; one instance for each time that a lease is acquired.

    The life cycle is that of the KCL's ``ShardRecordProcessor``: `initialize` once, then
    `process_records` for batch after batch, then one of `lease_lost` and `shard_ended`. Calls for
    a shard never overlap and never come from two threads at once; different shards run
    concurrently. No record of a shard's children is delivered, on any worker, before the parent's
    `shard_ended` has checkpointed.

    All methods are plain ones, whose work is done when they return. A class with one that is
    ``async def``, or has a ``yield``, is refused (`ProcessorError`); a call that returns a
    coroutine or a generator all the same ends the worker with that error.
    """

    def initialize(self, shard: ProcessorShard) -> None:
        """Called first. An exception is logged and the call repeated."""

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        """Process user records, in order. Checkpoint as often as you like, or not at all.

        An exception is handled as the application's ``on_error`` says; no record is skipped unless
        that says so.
        """
        raise NotImplementedError

    def lease_lost(self) -> None:
        """Another worker has the shard now, or will: checkpoints are refused from here on."""

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """The shard was split or merged, and every record of it was delivered.

        Must checkpoint, which lets the shard's children begin. The call is repeated until it does.
        """
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """The worker shuts down, or the shard moves to another one: the last chance to checkpoint.

        `lease_lost` follows.
        """


ProcessorFactory: TypeAlias = Callable[[], RecordProcessor]
"""Makes a record processor without arguments, such as its class."""

_REQUIRED = ("initialize", "process_records", "lease_lost", "shard_ended", "shutdown_requested")


def check_factory(factory: object) -> None:
    """Raise `ProcessorError` for what cannot make record processors, as far as one can tell."""
    if isinstance(factory, RecordProcessor):
        raise ProcessorError(
            f"The processor is an instance of {type(factory).__name__}. Each shard needs one of "
            f"its own: give the class, or a function that makes one."
        )
    if not callable(factory):
        raise ProcessorError(
            f"The processor is {factory!r}, which cannot be called. Give a class derived from "
            "sparkinesis.RecordProcessor, or a function that makes an instance of one."
        )
    made: object = factory
    while isinstance(made, functools.partial):
        made = made.func
    if isinstance(made, type):
        _check_methods(made)
        refuse_asynchronous(made, _REQUIRED)
    refuse_factory(factory)


def make_processor(factory: ProcessorFactory) -> RecordProcessor:
    """A new record processor. Raises `ProcessorError` if what was made is none."""
    processor = made_by(factory)
    _check_methods(type(processor))
    refuse_asynchronous(processor, _REQUIRED)
    return cast("RecordProcessor", processor)


def _check_methods(made: type) -> None:
    missing = [name for name in _REQUIRED if not callable(getattr(made, name, None))]
    if getattr(made, "process_records", None) is RecordProcessor.process_records:
        missing.append("process_records")
    if missing:
        raise ProcessorError(
            f"{made.__module__}.{made.__qualname__} is no record processor: it has no "
            f"{' and no '.join(missing)}. Derive it from sparkinesis.RecordProcessor, which needs "
            "process_records(self, batch, checkpointer) only."
        )
