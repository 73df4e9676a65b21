"""Parquet files from a record processor, stored before a checkpoint covers their rows.

Rows stay in memory until a checkpoint is about to be written. Then all files are written under
hidden names, all are moved to visible names, and the checkpoint is written. So a checkpoint is
never ahead of the files, and a crash leaves no incomplete file visible. Records whose rows were
stored without a checkpoint are delivered again: each row is stored at least once.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from sparkinesis.errors import LeaseLostError, SinkUnavailableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.metrics.catalogue import SINK_DURATION, SINK_FILES, SINK_ROWS
from sparkinesis.metrics.metrics import OFF, Metrics, timed
from sparkinesis.public import public_sink

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkinesis.worker.sink.plan import Rows, SinkPlan
    from sparkinesis.worker.sink.storage import Storage
import hashlib

from sparkinesis.stream.address import StreamIdentifier

DEFAULT_MAX_BYTES = 64 * 2**20
DEFAULT_MAX_AGE = 60.0


class _Piece(msgspec.Struct, frozen=True):
    """The rows of one directory from one call of `ParquetSink.write`."""

    directory: str
    rows: pa.Table
    size: int
    since: float
    call: int | None
    """The call of ``process_records`` whose own thread wrote the rows; None for other threads."""


_File: TypeAlias = "tuple[str, pa.Table]"
"""A file's path, and its rows."""


@public_sink
class ParquetSink:
    """Collects rows of one shard; made by `ProcessorShard.sink`. May be used from any thread.

    Rows become files only when the shard's checkpointer is about to write a checkpoint. Rows that a
    failed ``process_records`` wrote, in its own thread, are dropped, unless a checkpoint has stored
    them; so are the rows left when the lease is lost. Their records are delivered again.
    """

    def __init__(
        self, plan: SinkPlan, storage: Storage, labels: Mapping[str, str], sinks: ShardSinks
    ) -> None:
        self._plan = plan
        self._storage = storage
        self._labels = labels
        self._sinks = sinks
        self._pieces: list[_Piece] = []
        stream_id = labels.get("stream_id")
        self._place = labels["shard"]
        if stream_id is not None:
            stream = stream_label(labels["stream"], stream_id)
            self._place = shortened(f"{stream}-{labels['shard']}")

    @property
    def path(self) -> str:
        """The place of the files, without secrets."""
        return self._storage.name

    @property
    def buffered_rows(self) -> int:
        """The number of rows that are in memory only."""
        with self._sinks.lock:
            return sum(len(piece.rows) for piece in self._pieces)

    @property
    def buffered_bytes(self) -> int:
        """The size in bytes of the rows that are in memory only."""
        with self._sinks.lock:
            return sum(piece.size for piece in self._pieces)

    @property
    def is_due(self) -> bool:
        """True once ``max_bytes`` or ``max_age`` is reached, which calls for a checkpoint."""
        with self._sinks.lock:
            if not self._pieces:
                return False
            is_old = self._sinks.clock() - self._pieces[0].since >= self._plan.max_age
            return is_old or self.buffered_bytes >= self._plan.max_bytes

    def write(self, rows: Rows) -> None:
        """Keep rows in memory, to be stored before the next checkpoint.

        rows: a ``pyarrow.RecordBatch``, a ``pyarrow.Table``, or a list of dicts, in which a missing
        key is null. Write only rows of the records in the current call of ``process_records``: if
        the call fails, its rows are dropped, and its records are delivered again. Write all rows of
        a call at once: each write costs about 1 KB more per column.

        Raises `SchemaMismatchError` if the rows do not fit the schema (then no row is kept), and
        `LeaseLostError` after the lease was lost or released.
        """
        found = self._plan.split(self._plan.fit(rows))
        with self._sinks.lock:
            if self._sinks.is_closed:
                raise LeaseLostError(
                    f"The lease of {_describe(self._labels)} was lost or released, so rows for "
                    f"{self.path} were refused: no checkpoint can follow them. The lease's next "
                    "owner resumes at the last checkpoint."
                )
            since = self._sinks.clock()
            call = self._sinks.present_call
            self._pieces += [_Piece(place, part, part.nbytes, since, call) for place, part in found]

    # --- for the shard's sinks, which hold their lock

    def take_back(self, call: int) -> None:
        self._pieces = [piece for piece in self._pieces if piece.call != call]

    def clear(self) -> None:
        """Drop the rows: they are stored, or the lease is lost."""
        self._pieces.clear()

    def files(self, unique: Callable[[], str], span: Mapping[str, str]) -> list[_File]:
        """Return the rows as files; ``unique`` makes a unique part of each file's name."""
        places: dict[str, list[pa.Table]] = {}
        for piece in self._pieces:
            places.setdefault(piece.directory, []).append(piece.rows)
        labels = {f"sparkinesis.{key}": text for key, text in {**self._labels, **span}.items()}
        files = []
        for place, tables in places.items():
            rows = self._plan.join(tables, labels)
            # A single write may exceed max_bytes many times.
            step = math.ceil(len(rows) / max(1, math.ceil(rows.nbytes / self._plan.max_bytes)))
            for start in range(0, len(rows), step):
                name = f"part-{self._place}-{unique()}.parquet"
                files.append((f"{place}/{name}".lstrip("/"), rows.slice(start, step)))
        return files

    def stage(self, files: list[_File]) -> None:
        with self._storing():
            for path, rows in files:
                self._storage.write_hidden(path, rows, self._plan.compression)

    def publish(self, files: list[_File]) -> None:
        with self._storing():
            for path, _ in files:
                self._storage.show(path)
            self._storage.settle(path for path, _ in files)
        self.clear()

    def discard(self, files: list[_File]) -> None:
        for path, _ in files:
            self._storage.discard(path)

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        """Turn any error of the file system into `SinkUnavailableError`."""
        try:
            yield
        except Exception as error:
            raise SinkUnavailableError(
                f"Rows of {_describe(self._labels)} cannot be stored in {self.path}: "
                f"{type(error).__name__}: {error}. Their checkpoint was not written, so nothing is "
                "lost. See that the place can be written to; the next checkpoint tries again."
            ) from error


class ShardSinks:
    """The sinks of one shard, for one acquisition of its lease. May be used from any thread.

    clock: monotonic, in seconds. unique: returns a text that no other file's name has ever had.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
        *,
        metrics: Metrics = OFF,
        stream: str = "",
    ) -> None:
        """``stream``: the stream's name, for ``metrics``."""
        self.clock = clock
        self._metrics = metrics
        self._stream = stream
        self.lock = threading.RLock()
        self.is_closed = False
        self._unique = unique
        self._count = 0
        self._calls = 0
        self._caller: int | None = None
        self._sinks: list[ParquetSink] = []

    def open(self, plan: SinkPlan, storage: Storage, labels: Mapping[str, str]) -> ParquetSink:
        """Make a sink. ``labels`` go into each file's metadata.

        "shard" also goes into its name; so does "stream_id", in an application of several streams.
        """
        with self.lock:
            self._sinks.append(ParquetSink(plan, storage, labels, self))
            return self._sinks[-1]

    @property
    def are_in_use(self) -> bool:
        """True if there is a sink."""
        return bool(self._sinks)

    @property
    def has_rows(self) -> bool:
        return any(sink.buffered_rows for sink in self._sinks)

    @property
    def is_due(self) -> bool:
        """True if one of the sinks is due."""
        return bool(self._sinks) and any(sink.is_due for sink in self._sinks)

    @property
    def present_call(self) -> int | None:
        """The number of this thread's current or last call of ``process_records``.

        None in other threads: if the call fails, the records of their rows may not be delivered
        again.
        """
        return self._calls if threading.get_ident() == self._caller else None

    def begin_call(self) -> None:
        """Begin a call of the processor, whose rows may have to be dropped."""
        with self.lock:
            self._calls += 1
            self._caller = threading.get_ident()

    def take_back(self) -> None:
        """Drop the rows of the current call, which has failed: its records are delivered again."""
        with self.lock:
            for sink in self._sinks:
                sink.take_back(self._calls)

    def flush(self, after: ExtendedSequenceNumber, until: ExtendedSequenceNumber) -> None:
        """Store all rows: those of the records after ``after``, up to and including ``until``.

        Raises `SinkUnavailableError`; then the rows are kept, and some may be stored twice later.
        """
        span = {"after": str(after), "until": str(until)}
        with self.lock:
            store = partial(self._store, span)
            timed(store, self._metrics, SINK_DURATION, (self._stream,), clock=self.clock)

    def _store(self, span: Mapping[str, str]) -> None:
        staged = [(sink, sink.files(self._unique_part, span)) for sink in self._sinks]
        try:
            for sink, files in staged:
                sink.stage(files)
            while staged:
                sink, files = staged[0]
                sink.publish(files)
                staged.pop(0)
                self._count_files(files)
        finally:
            for sink, files in staged:
                sink.discard(files)

    def _count_files(self, files: list[_File]) -> None:
        if files and self._metrics is not OFF:
            self._metrics.add(SINK_FILES, (self._stream,), len(files))
            self._metrics.add(SINK_ROWS, (self._stream,), sum(len(rows) for _, rows in files))

    def close(self) -> None:
        """Drop all rows, and refuse new ones: the lease is lost or released."""
        with self.lock:
            self.is_closed = True
            for sink in self._sinks:
                sink.clear()

    def _unique_part(self) -> str:
        self._count += 1
        return f"{self._count:05}-{self._unique()}"


def _describe(labels: Mapping[str, str]) -> str:
    stream = labels.get("stream_id", labels["stream"])
    return f"shard {labels['shard']} of stream {stream} (application {labels['application']!r})"


_LONGEST = 160
"""The most bytes of the part of a name that identifies the records. File systems allow 255 in all,
and the hidden name of a dead letter has 42 more."""
_LONGEST_OF_SEVERAL = 200
"""The same with several streams, whose names take more."""


def stream_label(stream: str, stream_id: str | None) -> str:
    """Return the text that stands for a stream in file names.

    ``stream_id``: the identifier of one of several streams, whose names need not differ; None: the
    application reads one stream, whose name is the text.
    """
    return stream if stream_id is None else StreamIdentifier.parse(stream_id).file_label


def shortened(name: str) -> str:
    """Return a name that fits into a file's name. The same name always becomes the same."""
    encoded = name.encode()
    longest = _LONGEST if "@" not in name else _LONGEST_OF_SEVERAL
    if len(encoded) <= longest:
        return name
    # Streams and shards may have names of 128 characters, and sequence numbers as many digits.
    digest = hashlib.blake2b(encoded, digest_size=16).hexdigest()
    return f"{encoded[: longest - len(digest) - 1].decode(errors='ignore')}-{digest}"
