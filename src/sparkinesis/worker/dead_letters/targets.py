"""The targets of dead letters, records that cannot be processed: stream, directory, function.

Every application imports this module, and few have a directory or a stream: these import what they
use themselves, such as pyarrow.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeAlias

from sparkinesis.errors import OptionError, SinkUnavailableError
from sparkinesis.public import public_sink
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    StreamAddress,
    repr_without_secrets,
    stream_address,
)
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.processors.user_calls import asynchronous, unfinished, why_not_callable
from sparkinesis.worker.reporting.failures import cut
from sparkinesis.worker.sink.sink import shortened, stream_label


@public_sink
@dataclass(frozen=True, slots=True)
class FailedRecords:
    """The user records of one shard that cannot be processed, and the error."""

    batch: RecordBatch
    error: BaseException
    application: str
    stream: str
    shard_id: str
    stream_id: str | None = None
    """``<account>:<stream>:<creation epoch>``, in an application of several streams; None: the
    application reads one stream."""

    @property
    def name(self) -> str:
        """A name made of stream, shard and positions: the same for the same records.

        With several streams, it holds the stream's account and creation epoch as well.
        """
        first, last = self.batch.records[0].position, self.batch.last
        places = [f"{place.sequence_number}-{place.sub_sequence_number}" for place in (first, last)]
        stream = stream_label(self.stream, self.stream_id)
        return f"{stream}-{self.shard_id}-{'-to-'.join(places)}"


@public_sink
@dataclass(frozen=True, slots=True)
class DeadLetterStream:
    """Puts the failed records into another stream, with their keys and data unchanged.

    A record without a partition key gets a random one: most streams refuse records without a key.
    A key that Kinesis refuses, such as one that a foreign producer packed into an aggregate, is
    replaced or cut.

    stream: the stream's name, or its ARN for a stream of another account.

    Raises `OptionError` for a name, region or endpoint that cannot be used.
    """

    stream: str
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        for name in ("stream", "region", "endpoint"):
            text = getattr(self, name)
            if not isinstance(text, str) and (text is not None or name == "stream"):
                raise OptionError(f"{name} of DeadLetterStream is {text!r}; it must be a string.")
        if not isinstance(self.credentials, CredentialSource):
            raise OptionError("credentials of DeadLetterStream must be CredentialSource(...).")
        self.address()

    def address(self) -> StreamAddress:
        """Return the stream's address."""
        return stream_address(self.stream, self.region, self.endpoint, self.credentials)

    def __call__(self, failed: FailedRecords) -> None:
        """Put the records. Raises `Putter`'s errors: some records may be put, and are put again."""
        from sparkinesis.stream.put_entry import fitting_keys, random_key  # noqa: PLC0415 - see above
        from sparkinesis.stream.putting import Putter  # noqa: PLC0415

        with Putter(self.address(), ordered=True) as putter:
            putter.put(
                (
                    *fitting_keys(record.partition_key, record.explicit_hash_key, random_key()),
                    record.data,
                )
                for record in failed.batch.records
            )


@public_sink
@dataclass(frozen=True, slots=True)
class DeadLetterDirectory:
    """Writes a Parquet file for each batch of failed records, with the error as its metadata.

    The columns are those of user records. A file is named after its records, so a second file of
    the same records replaces the first. A visible file is complete, and on a local disk it survives
    a power failure. `sparkinesis dead-letters PATH` lists and shows the files, and puts their
    records back into a stream.

    path: a local directory, or a URI as `ProcessorShard.sink` takes it (file, s3, s3a, gs, abfs,
    hdfs, or any that fsspec knows). The workers of a fleet run on other machines: give a path that
    all of them can reach.
    filesystem: a file system of pyarrow or fsspec, with its own credentials; ``path`` is within it.
    clock: epoch seconds, for the time of failure in a file.

    Raises `OptionError` for a path that cannot be used. The storage is not accessed before the
    first file.
    """

    path: str | os.PathLike[str]
    filesystem: object | None = None
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        from sparkinesis.worker.sink.storage import check_place  # noqa: PLC0415 - see above

        check_place(self.path, self.filesystem)

    @property
    def is_local(self) -> bool:
        """True if the files are on disks of the machine that the worker runs on."""
        from sparkinesis.worker.sink.storage import is_local  # noqa: PLC0415 - see above

        return is_local(self.path, self.filesystem)

    def __call__(self, failed: FailedRecords) -> None:
        """Store the records as a file.

        Raises `SinkUnavailableError` if the file cannot be stored; no part of it is left. Raises
        `OptionError` if the path cannot be used.
        """
        from sparkinesis.worker.dead_letters.stored import to_table  # noqa: PLC0415 - see above
        from sparkinesis.worker.sink.storage import open_storage  # noqa: PLC0415

        storage = open_storage(self.path, self.filesystem)
        now = datetime.fromtimestamp(self.clock(), timezone.utc)
        table = to_table(
            failed.batch.to_arrow(), failed.error, failed.application, now, failed.stream_id
        )
        try:
            storage.put(f"{shortened(failed.name)}.parquet", table, uuid.uuid4().hex)
        except Exception as error:
            raise SinkUnavailableError(
                f"The dead letter {failed.name} cannot be stored in {storage.name}: "
                f"{type(error).__name__}: {error}. The shard waits, and the file is retried. Make "
                "sure that the directory can be written to."
            ) from error


DeadLetterTarget: TypeAlias = Callable[[FailedRecords], None]
"""A function, `DeadLetterStream` or `DeadLetterDirectory`."""


def check_target(target: object) -> None:
    """Raise `OptionError` if ``target`` cannot take a `FailedRecords`."""
    must = "it must be a function of a FailedRecords, a DeadLetterStream or a DeadLetterDirectory."
    if isinstance(target, type):
        raise OptionError(
            f"The dead-letter target is the class {target.__name__}; give an instance: {must}"
        )
    if not callable(target):
        raise OptionError(f"The dead-letter target is {_shown(target)}; {must}")
    if asynchronous(target):
        raise OptionError(
            f"The dead-letter target {_shown(target)} is async or a generator: calling it stores "
            f"nothing, and the records would be lost. Give a plain function: {must}"
        )
    if error := why_not_callable(target, None, follow_wrapped=True):
        raise OptionError(
            f"The dead-letter target {_shown(target)} cannot be called with one argument, the "
            f"FailedRecords ({error}): {must}"
        )


def hand_over(target: DeadLetterTarget, failed: FailedRecords) -> None:
    """Give records to a target. Raises the target's errors.

    Raises `OptionError` if the target returns unfinished work, such as a coroutine: nothing would
    run it.
    """
    answer: object = target(failed)  # type: ignore[func-returns-value]
    if unfinished(answer):
        raise OptionError(
            f"The dead-letter target {_shown(target)} returned {type(answer).__name__}, which is "
            "never run: the records are not stored. Store them before the target returns."
        )


def _shown(target: object) -> str:
    try:
        return cut(repr(target), 200)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return f"of type {type(target).__name__}"
