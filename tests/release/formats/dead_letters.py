"""Dead letters: a file's name, its columns, its metadata, and what a summary tells of them.

Parquet's own bytes are left out: they depend on the version of pyarrow.
"""

from __future__ import annotations

import base64
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkinesis.sinks import DeadLetterDirectory
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.dead_letters.stored import DeadLetters
from sparkinesis.worker.dead_letters.targets import FailedRecords
from tests.release.formats.leases import STREAM
from tests.release.formats.offsets import INSTANT, NUMBERS, SHARDS

_ERROR = ValueError("no such plane: Z\u00fcrich")
_LETTERS = {"of the only stream": None, "of one of several streams": str(STREAM)}


def write() -> dict[str, Any]:
    """Return files, by a name of each."""
    return {name: _written(stream_id) for name, stream_id in _LETTERS.items()}


def _written(stream_id: str | None) -> dict[str, Any]:
    (packed,) = aggregate([("plane 1", None, b"late"), ("plane 2", "7", b"\xff\0")])
    records = [
        Record(
            data=data,
            partition_key="plane 0",
            sequence_number=number,
            approximate_arrival_timestamp=INSTANT / 1000 + 0.5,
        )
        for number, data in ((NUMBERS[0], b"on time"), (NUMBERS[2], packed.data))
    ]
    batch, _ = make_batch(records, stream="flights", shard_id=SHARDS[0], millis_behind_latest=0)
    failed = FailedRecords(batch, _ERROR, "flights-app", "flights", SHARDS[0], stream_id)
    with tempfile.TemporaryDirectory() as folder:
        DeadLetterDirectory(folder, clock=lambda: INSTANT / 1000)(failed)
        (path,) = Path(folder).iterdir()
        table = pq.read_table(path)
    return {
        "name": path.name,
        "columns": [[field.name, str(field.type)] for field in table.schema],
        "metadata": {
            name.decode(): value.decode() for name, value in table.schema.metadata.items()
        },
        "rows": [_row_as_json(row) for row in table.to_pylist()],
    }


def read(file: Any) -> dict[str, Any]:
    """Return what the summary of a file tells, and the records that are put back."""
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in file["columns"]], file["metadata"])
    rows = [_row_from_json(row) for row in file["rows"]]
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.Table.from_pylist(rows, schema), Path(folder, file["name"]))
        place = DeadLetters.at(folder)
        (letter,) = place.contents().letters
        stored = place.rows(letter).to_pylist()
    about = letter.about
    return {
        "file": letter.file,
        "stream": about.stream,
        "stream_id": about.stream_id,
        "shard": about.shard_id,
        "first": str(about.first),
        "last": str(about.last),
        "records": about.records,
        "application": about.application,
        "error": about.error,
        "traceback": about.traceback,
        "failed_at": about.failed_at and about.failed_at.isoformat(),
        "to_put_back": [
            [row["partitionKey"], row["explicitHashKey"], row["data"].hex()] for row in stored
        ],
    }


_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int64": pa.int64(),
    "timestamp[us, tz=UTC]": pa.timestamp("us", tz="UTC"),
}


def _row_as_json(row: dict[str, Any]) -> dict[str, Any]:
    arrived: datetime = row["approximateArrivalTimestamp"]
    return {
        **row,
        "data": base64.b64encode(row["data"]).decode(),
        "approximateArrivalTimestamp": arrived.isoformat(),
    }


def _row_from_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "data": base64.b64decode(row["data"]),
        "approximateArrivalTimestamp": datetime.fromisoformat(row["approximateArrivalTimestamp"]),
    }
