"""The class that a user derives a record processor from, and the shard that it is given."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from sparkinesis.errors import ProcessorError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.public import public
from sparkinesis.worker.processors.user_calls import made_by, refuse_asynchronous, refuse_factory
from sparkinesis.worker.sink.sink import DEFAULT_MAX_AGE, DEFAULT_MAX_BYTES, ParquetSink, ShardSinks

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkinesis.worker.batches.batch import RecordBatch
    from sparkinesis.worker.batches.user_record import UserRecord
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
    """The shard's last checkpoint: delivery begins after it."""
    pending_checkpoint: PendingCheckpoint | None = None
    """A checkpoint that was prepared and not committed: see `commit_pending` and `drop_pending`.
    The next checkpoint of any kind removes it."""
    request_shutdown: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Begins a graceful shutdown of the worker, with all of its shards; returns at once."""
    pause: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Pauses this shard until `resume`, as `Worker.pause` does; returns at once. For any thread."""
    resume: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Ends the pause, whoever began it; returns at once. For any thread."""
    commit_pending: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Commits `pending_checkpoint`; call it in ``initialize`` if the work of its records was
    completed. Delivery then begins after it. Raises the errors of `Checkpointer.commit_pending`."""
    drop_pending: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Drops `pending_checkpoint`; call it in ``initialize`` if the work was undone. Its records are
    delivered again. Raises the errors of `Checkpointer.drop_pending`."""
    sinks: ShardSinks = field(default_factory=ShardSinks, repr=False, compare=False)
    """The sinks that `sink` made."""
    stream_id: str | None = None
    """``<account>:<stream>:<creation epoch>``, in an application of several streams; it tells apart
    streams of one name, of two accounts or one made after the other."""
    fencing_token: int = 0
    """A number that grows with each acquisition of the lease. A store of your own can refuse
    the writes of a worker that has lost the lease: its token is smaller than the largest one seen.
    From 1 to 2**63 - 1, and not consecutive."""

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
        """Make a sink for rows of this shard: Parquet files, stored before each checkpoint.

        Call it in `initialize`. Nothing is written yet.

        path: a local directory, or a URI that pyarrow knows (file, s3, s3a, gs, abfs, hdfs) or, if
        fsspec is installed, that fsspec knows. With ``filesystem``: a path in that file system.
        partition_by: columns (integers, booleans, strings or dates) that become directories
        ``name=value``, as Spark's do, and are left out of the files.
        max_bytes: the sink is due when it holds this many bytes in memory; files on disk are
        smaller. Default: 64 MiB.
        max_age: the sink is due when it has held a row for this many seconds. Default: 60.
        filesystem: a file system of pyarrow or fsspec, with its own credentials and settings.
        compression: the codec's Parquet name; None: no compression. Default: zstd.

        Raises `OptionError` for a value that cannot be used, and `SinkUnavailableError` if the
        storage's client cannot be made.
        """
        # With pyarrow, which has been imported to make the schema.
        from sparkinesis.worker.sink.plan import SinkPlan  # noqa: PLC0415
        from sparkinesis.worker.sink.storage import open_storage  # noqa: PLC0415

        plan = SinkPlan(schema, partition_by, max_bytes, max_age, compression)
        labels = {
            "application": self.application,
            "stream": self.stream,
            "shard": self.id,
            "worker": self.worker_id,
        }
        if self.stream_id is not None:
            labels["stream_id"] = self.stream_id
        return self.sinks.open(plan, open_storage(path, filesystem), labels)


@public
class RecordProcessor:
    """Processes the records of one shard. A new instance is made each time a lease is acquired.

    The life cycle is that of the KCL's ``ShardRecordProcessor``: `initialize` once, then
    `process_records` for batch after batch, then either `lease_lost` or `shard_ended`
    (`shutdown_requested` may precede `lease_lost`). Calls for a shard never overlap and never come
    from two threads at once; different shards run concurrently. No record of a shard's children is
    delivered, on any worker, before the parent's `shard_ended` has checkpointed (unless the option
    ``parents_first`` is False).

    Each method may be ``async def``: it then runs on an event loop, in a thread beside those that
    fetch and renew, and the shard waits for its end. Otherwise it must have done its work when it
    returns. A class with a method that has a ``yield`` is refused (`ProcessorError`). A plain
    method that returns a coroutine or a generator ends the worker with the same error.
    """

    def initialize(
        self,
        shard: ProcessorShard,  # noqa: ARG002 - for those who override the method
    ) -> Awaitable[ExtendedSequenceNumber | None] | ExtendedSequenceNumber | None:
        """Prepare for the shard; called first. An exception is logged, and the call is retried.

        Return None, and delivery begins after the shard's checkpoint. Or return where it begins,
        from a store of your own: an `ExtendedSequenceNumber`, up to which everything is done, or
        ``ExtendedSequenceNumber("TRIM_HORIZON")``. It becomes the shard's checkpoint, and may lie
        before the last one. Another value ends the worker with `ProcessorError`.
        """
        return None

    def process_records(
        self, batch: RecordBatch, checkpointer: Checkpointer
    ) -> Awaitable[None] | None:
        """Process user records, in order. Checkpoint as often as you like, or not at all.

        With the option ``checkpoint_seconds`` or ``checkpoint_records``, the worker checkpoints the
        records after this call has returned.

        The application's ``on_error`` decides what follows an exception. By default the records
        are delivered again, and none is skipped.
        """
        raise NotImplementedError

    def process_record(self, record: UserRecord) -> Awaitable[None] | None:
        """Process one user record; called in place of `process_records` with ``concurrency``.

        Calls of one shard overlap, from many threads; those for one partition key do not, and come
        in order. The application's ``on_error`` decides what follows an exception. A record that is
        tried again holds up the later ones of its key, and checkpoints, but not other keys.
        """
        raise NotImplementedError

    def lease_lost(self) -> Awaitable[None] | None:
        """Clean up: another worker has the shard, or will. Checkpoints are refused from now on."""

    def shard_ended(self, checkpointer: Checkpointer) -> Awaitable[None] | None:
        """Finish the shard: it was split or merged, and all of its records were delivered.

        Must checkpoint, so that the shard's children can begin. The call is repeated until it does.
        With automatic checkpoints, the worker does so when the call has returned.
        """
        checkpointer.checkpoint()
        return None

    def shutdown_requested(self, checkpointer: Checkpointer) -> Awaitable[None] | None:
        """Checkpoint for the last time: the worker shuts down, or another worker gets the shard.

        `lease_lost` follows.
        """


ProcessorFactory: TypeAlias = Callable[[], RecordProcessor]
"""A class or function that makes a record processor when called without arguments."""

_REQUIRED = ("initialize", "lease_lost", "shard_ended", "shutdown_requested")


def _called(*, by_record: bool) -> tuple[str, ...]:
    """Return the methods that a processor must have."""
    return (*_REQUIRED, "process_record" if by_record else "process_records")


def check_factory(factory: object, *, by_record: bool = False) -> None:
    """Raise `ProcessorError` if ``factory`` can be seen, without a call, not to make processors.

    ``by_record``: they are to process one record a call, with the option ``concurrency``.
    """
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
        _check_methods(made, by_record=by_record)
        refuse_asynchronous(made, _called(by_record=by_record), permit_coroutines=True)
    refuse_factory(factory)


def make_processor(factory: ProcessorFactory, *, by_record: bool = False) -> RecordProcessor:
    """Make a record processor. Raises `ProcessorError` if the factory returns something else."""
    processor = made_by(factory)
    _check_methods(type(processor), by_record=by_record)
    refuse_asynchronous(processor, _called(by_record=by_record), permit_coroutines=True)
    return cast("RecordProcessor", processor)


def _check_methods(made: type, *, by_record: bool) -> None:
    called = _called(by_record=by_record)
    missing = [name for name in called if not callable(getattr(made, name, None))]
    main = called[-1]
    if getattr(made, main, None) is getattr(RecordProcessor, main):
        missing.append(main)
    if missing:
        given = "record" if by_record else "batch, checkpointer"
        why = ", because of the option concurrency" if by_record else ""
        raise ProcessorError(
            f"{made.__module__}.{made.__qualname__} is not a record processor: it has no "
            f"{' and no '.join(missing)}. Derive it from sparkinesis.RecordProcessor, and define "
            f"{main}(self, {given}){why}."
        )
