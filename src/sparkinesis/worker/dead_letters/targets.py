"""Where user records go that cannot be processed: a function, a stream, or a directory."""

from __future__ import annotations

import inspect
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeAlias

from sparkinesis.errors import OptionError, SinkUnavailableError
from sparkinesis.public import public
from sparkinesis.stream.address import StreamAddress, stream_address
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.put_entry import fitting_keys, random_key
from sparkinesis.stream.putting.putter import PutPlan, Putter
from sparkinesis.worker.batch import RecordBatch
from sparkinesis.worker.dead_letters.file import file_name, to_table
from sparkinesis.worker.reporting.failures import cut
from sparkinesis.worker.sink.storage import check_place, is_local, open_storage
from sparkinesis.worker.user_methods import asynchronous, discard, unfinished


@public
@dataclass(frozen=True, slots=True)
class FailedRecords:
    """User records of one shard that ``process_records`` failed on, and how."""

    batch: RecordBatch
    error: BaseException
    application: str
    stream: str
    shard_id: str

    @property
    def name(self) -> str:
        """Says where the records are from: the same for the same records."""
        first, last = self.batch.records[0].position, self.batch.last
        places = [f"{place.sequence_number}-{place.sub_sequence_number}" for place in (first, last)]
        return f"{self.stream}-{self.shard_id}-{'-to-'.join(places)}"


@public
@dataclass(frozen=True, slots=True)
class DeadLetterStream:
    """Puts the records into another stream, each with its own keys and data as they were.

    A record without a partition key gets a random one: most streams take no record without. A key
    that Kinesis refuses, as one that a foreign producer packed into an aggregate, is replaced or
    cut.

    stream: its name, or its ARN if it is another account's.

    Raises `OptionError` for what cannot be the place of a stream.
    """

    stream: str
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO

    def __post_init__(self) -> None:
        for name in ("stream", "region", "endpoint"):
            text = getattr(self, name)
            if not isinstance(text, str) and (text is not None or name == "stream"):
                raise OptionError(f"{name} of DeadLetterStream is {text!r}; it must be a text.")
        if not isinstance(self.credentials, CredentialSource):
            raise OptionError("credentials of DeadLetterStream must be CredentialSource(...).")
        self.address()

    def address(self) -> StreamAddress:
        """The stream."""
        return stream_address(self.stream, self.region, self.endpoint, self.credentials)

    def __call__(self, failed: FailedRecords) -> None:
        """Raises what `Putter` does; records may have been put then, and will be again."""
        with Putter(self.address(), PutPlan(ordered=True)) as putter:
            putter.put(
                (
                    *fitting_keys(record.partition_key, record.explicit_hash_key, random_key()),
                    record.data,
                )
                for record in failed.batch.records
            )


@public
@dataclass(frozen=True, slots=True)
class DeadLetterDirectory:
    """Writes a Parquet file for each batch of failed records, with the error as its metadata.

    The columns are those of user records. A file is named after its records, so that a repetition
    replaces it. A file is whole from the moment at which it can be seen, and survives a power
    failure on a disk of this machine. `sparkinesis dead-letters PATH` lists and shows the files,
    and puts their records back into a stream.

    path: a local directory, or a URI as `ProcessorShard.sink` takes it (file, s3, s3a, gs, abfs,
    hdfs, or what fsspec knows). The workers of a fleet run on other machines: give those a place
    that all of them reach.
    filesystem: of pyarrow or fsspec, with credentials of its own; ``path`` is a path within it.
    clock: epoch seconds, for the moment of failure that a file tells.

    Raises `OptionError` for what cannot be such a place. Nothing is called before the first file.
    """

    path: str | os.PathLike[str]
    filesystem: object | None = None
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_place(self.path, self.filesystem)

    @property
    def is_local(self) -> bool:
        """Whether the files are on the disks of the machine that the worker runs on."""
        return is_local(self.path, self.filesystem)

    def __call__(self, failed: FailedRecords) -> None:
        """Raises `SinkUnavailableError` if the file cannot be stored; nothing of it is left then.

        `OptionError` if the place turns out to be none.
        """
        storage = open_storage(self.path, self.filesystem)
        now = datetime.fromtimestamp(self.clock(), timezone.utc)
        table = to_table(failed.batch.to_arrow(), failed.error, failed.application, now)
        try:
            storage.put(file_name(failed.name), table, uuid.uuid4().hex)
        except Exception as error:
            raise SinkUnavailableError(
                f"The dead letter {failed.name} cannot be stored in {storage.name}: "
                f"{type(error).__name__}: {error}. The shard waits for it. See that the place can "
                "be written to."
            ) from error


DeadLetterTarget: TypeAlias = Callable[[FailedRecords], None]
"""A function, `DeadLetterStream` or `DeadLetterDirectory`."""


def check_target(target: object) -> None:
    """Raise `OptionError` for what cannot take a `FailedRecords`."""
    must = "it must be a function of a FailedRecords, a DeadLetterStream or a DeadLetterDirectory."
    if isinstance(target, type):
        raise OptionError(
            f"The dead-letter target is the class {target.__name__}; give an instance: {must}"
        )
    if not callable(target):
        raise OptionError(f"The dead-letter target is {_shown(target)}; {must}")
    if asynchronous(target):
        raise OptionError(
            f"The dead-letter target {_shown(target)} is async or a generator: to call it would "
            f"store nothing, and the records would be lost. Give a plain function: {must}"
        )
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return  # written in C, and does not tell
    try:
        signature.bind(None)
    except TypeError as error:
        raise OptionError(
            f"The dead-letter target {_shown(target)} cannot be called with one argument, the "
            f"FailedRecords ({error}): {must}"
        ) from None


def hand_over(target: DeadLetterTarget, failed: FailedRecords) -> None:
    """Give records to a target. Raises what the target does.

    Raises `OptionError` if the target only promises to take them, as a function does that returns
    a coroutine: nobody waits for that.
    """
    answer: object = target(failed)  # type: ignore[func-returns-value]
    if unfinished(answer):
        discard(answer)
        raise OptionError(
            f"The dead-letter target {_shown(target)} returned {type(answer).__name__}, which "
            "nobody waits for: the records are not stored. Let it store them before it returns."
        )


def _shown(target: object) -> str:
    try:
        return cut(repr(target), 200)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return f"of type {type(target).__name__}"
