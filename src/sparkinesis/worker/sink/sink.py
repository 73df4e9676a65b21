"""Parquet files out of a record processor, each of them stored before a checkpoint covers it.

Rows are kept in memory until a checkpoint is about to be written. Then they become files: all are
written under hidden names, then all are moved to visible ones, then the checkpoint is written. So
a checkpoint is never ahead of the files, a crash leaves no part of a file visible, and what is
stored without its checkpoint comes again: each row is stored at least once.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sparkinesis.errors import LeaseLostError, SinkUnavailableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.public import public
from sparkinesis.worker.sink.plan import Rows, SinkPlan
from sparkinesis.worker.sink.storage import Storage

DEFAULT_MAX_BYTES = 64 * 2**20
DEFAULT_MAX_AGE = 60.0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one call of `ParquetSink.write`, for one directory."""

    directory: str
    rows: pa.Table
    size: int
    since: float
    call: int | None
    """The call of ``process_records`` that wrote them, if its own thread did."""


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    rows: pa.Table


@public
class ParquetSink:
    """Collects rows of one shard; made by `ProcessorShard.sink`. May be used from any thread.

    What it holds becomes files when the shard's checkpointer is about to write a checkpoint, and at
    no other time. What a failed ``process_records`` wrote, in its own thread, is taken back, unless
    a checkpoint in between has stored it; what is left when the lease is lost is dropped. Either
    comes again.
    """

    def __init__(
        self, plan: SinkPlan, storage: Storage, labels: Mapping[str, str], sinks: ShardSinks
    ) -> None:
        self._plan = plan
        self._storage = storage
        self._labels = labels
        self._sinks = sinks
        self._pieces: list[_Piece] = []

    @property
    def path(self) -> str:
        """Where the files are; without what may be secret."""
        return self._storage.name

    @property
    def buffered_rows(self) -> int:
        """Rows that are in memory only."""
        with self._sinks.lock:
            return sum(len(piece.rows) for piece in self._pieces)

    @property
    def buffered_bytes(self) -> int:
        """Their size in memory."""
        with self._sinks.lock:
            return sum(piece.size for piece in self._pieces)

    @property
    def is_due(self) -> bool:
        """Whether ``max_bytes`` or ``max_age`` is reached: time for a checkpoint."""
        with self._sinks.lock:
            if not self._pieces:
                return False
            is_old = self._sinks.clock() - self._pieces[0].since >= self._plan.max_age
            return is_old or self.buffered_bytes >= self._plan.max_bytes

    def write(self, rows: Rows) -> None:
        """Take rows, to be stored before the next checkpoint. Nothing is written but memory.

        rows: a ``pyarrow.RecordBatch``, a ``pyarrow.Table``, or a list of dicts, in which a key
        that is not there is null. They should be of records that the present call of
        ``process_records`` was given: if it fails, these rows are forgotten, and only its records
        come again. One write for all of them is best: each takes about a KB a column beside.

        Raises `SchemaMismatchError` (nothing was taken), and `LeaseLostError` once the processor's
        `lease_lost` is over, or its shard has ended and the lease was let go.
        """
        found = self._plan.split(self._plan.fit(rows))
        with self._sinks.lock:
            if self._sinks.is_closed:
                raise LeaseLostError(
                    f"The lease of {_describe(self._labels)} is held no more, so rows for "
                    f"{self.path} could not be followed by a checkpoint: none was taken. Whoever "
                    "has the lease goes on from its last checkpoint."
                )
            since = self._sinks.clock()
            call = self._sinks.present_call
            self._pieces += [_Piece(place, part, part.nbytes, since, call) for place, part in found]

    # --- for the shard's sinks, which hold their lock

    def take_back(self, call: int) -> None:
        self._pieces = [piece for piece in self._pieces if piece.call != call]

    def clear(self) -> None:
        """What was held is stored, or nobody's any more."""
        self._pieces.clear()

    def files(self, unique: Callable[[], str], span: Mapping[str, str]) -> list[_File]:
        """What is held, by files; ``unique`` makes a part of each one's name."""
        places: dict[str, list[pa.Table]] = {}
        for piece in self._pieces:
            places.setdefault(piece.directory, []).append(piece.rows)
        labels = {f"sparkinesis.{key}": text for key, text in {**self._labels, **span}.items()}
        metadata = {**(self._plan.schema.metadata or {}), **labels}
        files = []
        for place, tables in places.items():
            rows = pa.concat_tables(tables).replace_schema_metadata(metadata)
            # One write may be many times the limit.
            step = math.ceil(len(rows) / max(1, math.ceil(rows.nbytes / self._plan.max_bytes)))
            for start in range(0, len(rows), step):
                name = f"part-{self._labels['shard']}-{unique()}.parquet"
                files.append(_File(f"{place}/{name}".lstrip("/"), rows.slice(start, step)))
        return files

    def stage(self, files: list[_File]) -> None:
        for file in files:
            self._storage.write_hidden(file.path, file.rows, self._plan.compression)

    def publish(self, files: list[_File]) -> None:
        for file in files:
            self._storage.show(file.path)
        self._storage.settle(file.path for file in files)

    def discard(self, files: list[_File]) -> None:
        for file in files:
            self._storage.discard(file.path)

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """Turns whatever a file system raises into `SinkUnavailableError`."""
        try:
            yield
        except Exception as error:
            raise SinkUnavailableError(
                f"Rows of {_describe(self._labels)} cannot be stored in {self.path}: "
                f"{type(error).__name__}: {error}. Their checkpoint was not written, so nothing is "
                "lost. See that the place can be written to; the next checkpoint tries again."
            ) from error


class ShardSinks:
    """All sinks of one shard, for one acquisition of its lease. May be used from any thread.

    clock: monotonic, in seconds. unique: a text that no other file's name has ever had.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.is_closed = False
        self._unique = unique
        self._count = 0
        self._calls = 0
        self._caller: int | None = None
        self._sinks: list[ParquetSink] = []

    def open(self, plan: SinkPlan, storage: Storage, labels: Mapping[str, str]) -> ParquetSink:
        """One more sink. ``labels`` go into each file's metadata; "shard" into its name too."""
        with self.lock:
            self._sinks.append(ParquetSink(plan, storage, labels, self))
            return self._sinks[-1]

    @property
    def has_rows(self) -> bool:
        return any(sink.buffered_rows for sink in self._sinks)

    @property
    def is_due(self) -> bool:
        """Whether one of them is."""
        return any(sink.is_due for sink in self._sinks)

    @property
    def present_call(self) -> int | None:
        """The call of ``process_records`` that this thread is in, or was in last.

        None for other threads: what they write may be of records that do not come again when the
        call fails.
        """
        return self._calls if threading.get_ident() == self._caller else None

    def begin_call(self) -> None:
        """The processor is about to be called: what it writes may have to be taken back."""
        with self.lock:
            self._calls += 1
            self._caller = threading.get_ident()

    def take_back(self) -> None:
        """The call has failed, and its records come again: forget the rows that it wrote."""
        with self.lock:
            for sink in self._sinks:
                sink.take_back(self._calls)

    def flush(self, after: ExtendedSequenceNumber, until: ExtendedSequenceNumber) -> None:
        """Store all rows, which are of records behind ``after`` up to ``until``.

        Raises `SinkUnavailableError`: then nothing is dropped, and some rows may be stored twice.
        """
        span = {"after": str(after), "until": str(until)}
        with self.lock:
            staged = [(sink, sink.files(self._unique_part, span)) for sink in self._sinks]
            try:
                for sink, files in staged:
                    with sink.storing():
                        sink.stage(files)
                while staged:
                    sink, files = staged[0]
                    with sink.storing():
                        sink.publish(files)
                    sink.clear()
                    staged.pop(0)
            finally:
                for sink, files in staged:
                    sink.discard(files)

    def close(self) -> None:
        """The lease is held no more: drop what is left, and take no more."""
        with self.lock:
            self.is_closed = True
            for sink in self._sinks:
                sink.clear()

    def _unique_part(self) -> str:
        self._count += 1
        return f"{self._count:05}-{self._unique()}"


def _describe(labels: Mapping[str, str]) -> str:
    return "shard {shard} of stream {stream} (application {application!r})".format_map(labels)
