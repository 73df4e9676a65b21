"""Reads the output so far: Spark's files, and lines that record processors wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.soak.accounting import Event
from tests.soak.stored import Row


class Output:
    """The Parquet files of a query, by the number of their batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches: dict[int, list[Path]] = {}
        self.rows = 0

    def refresh(self) -> None:
        """Look what was committed since."""
        raise NotImplementedError

    def _add(self, number: int, files: list[Path]) -> None:
        self._batches[number] = sorted(files)
        self.rows += sum(pq.read_metadata(file).num_rows for file in files)

    def tables(self) -> Iterator[pa.Table]:
        """A file at a time, in the order of batches."""
        for _, files in sorted(self._batches.items()):
            yield from (pq.ParquetFile(file).read() for file in files)


class FileSink(Output):
    """The files that Spark's file sink has committed, by its log; other files are of failed tries.

    ``path/_spark_metadata/N`` names the files of batch N; ``N.compact`` those of all up to N.
    """

    def refresh(self) -> None:
        logs = {int(path.stem): path for path in self._folder.glob("_spark_metadata/[0-9]*")}
        known = {file for files in self._batches.values() for file in files}
        for number in sorted(logs.keys() - self._batches.keys()):
            lines = logs[number].read_text().splitlines()[1:]  # the first is a version
            files = {Path(json.loads(line)["path"].removeprefix("file://")) for line in lines}
            self._add(number, list(files - known))
            known |= files


class BatchFolders(Output):
    """The output of `write_once`: a folder for each batch, by its number."""

    def refresh(self) -> None:
        for folder in self._folder.glob("batch_id=*"):
            number = int(folder.name.partition("=")[2])
            if number not in self._batches:
                self._add(number, list(folder.glob("*.parquet")))


def rows_of(tables: Iterator[pa.Table]) -> Iterator[Row]:
    """Yields rows in order. One file holds all rows of a key in one batch."""
    for table in tables:
        columns = (table.column(n) for n in ("shard", "sequence", "sub", "key", "number"))
        yield from zip(*(column.to_pylist() for column in columns), strict=True)


class ProcessedLines:
    """The lines of all processors that write into a folder, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._events: list[Event] = []

    def refresh(self) -> list[Event]:
        """The lines that are new. One that is not whole is read when it is."""
        new: list[Event] = []
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            new += [json.loads(line) for line in whole.splitlines()]
        self._events += new
        return new

    @property
    def events(self) -> list[Event]:
        """All, in order of time."""
        return sorted(self._events, key=lambda event: float(event["at"]))
