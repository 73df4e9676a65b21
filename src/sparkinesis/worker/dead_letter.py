"""Where user records go that cannot be processed: a function, a stream, or a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from sparkinesis.errors import OptionError
from sparkinesis.stream.address import stream_address
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.entry import random_key
from sparkinesis.stream.putter import PutPlan, Putter
from sparkinesis.worker.batch import RecordBatch, UserRecord


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


@dataclass(frozen=True, slots=True)
class DeadLetterStream:
    """Puts the records into another stream, each with its own key and data as they were.

    A record without a partition key gets a random one: most streams take no record without.

    stream: its name, or its ARN if it is another account's.
    """

    stream: str
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO

    def __call__(self, failed: FailedRecords) -> None:
        """Raises what `Putter` does; records may have been put then, and will be again."""
        address = stream_address(self.stream, self.region, self.endpoint, self.credentials)
        with Putter(address, PutPlan(ordered=True)) as putter:
            putter.put(
                (_key(record), record.explicit_hash_key, record.data)
                for record in failed.batch.records
            )


def _key(record: UserRecord) -> str:
    return random_key() if record.partition_key is None else record.partition_key


@dataclass(frozen=True, slots=True)
class DeadLetterDirectory:
    """Writes a Parquet file for each batch of failed records, with the error as its metadata.

    The columns are those of user records. A file is named after its records, so that a repetition
    replaces it, and is there at once and whole.
    """

    path: str | Path

    def __call__(self, failed: FailedRecords) -> None:
        """Raises OSError."""
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        error = f"{type(failed.error).__name__}: {failed.error}"
        metadata = {"error": error, "application": failed.application}
        table = pa.Table.from_batches([failed.batch.to_arrow()])
        target = folder / f"{failed.name}.parquet"
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        with unfinished.open("wb") as file:
            pq.write_table(table.replace_schema_metadata(metadata), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)


DeadLetterTarget: TypeAlias = Callable[[FailedRecords], None]
"""A function, `DeadLetterStream` or `DeadLetterDirectory`."""


def check_target(target: object) -> None:
    """Raise `OptionError` for what cannot be called."""
    if not callable(target):
        raise OptionError(
            f"The dead-letter target is {target!r}; it must be a function, a DeadLetterStream or a "
            "DeadLetterDirectory."
        )
