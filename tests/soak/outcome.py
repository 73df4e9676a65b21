"""Reads the output so far: Spark's files, and lines that record processors wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.soak.accounting import Event
from tests.soak.stored import Row


class FileSink:
    """The files that Spark's file sink has committed, by its log; other files are of failed tries.

    ``path/_spark_metadata/N`` names the files of batch N; ``N.compact`` those of all up to N.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches: dict[int, list[Path]] = {}
        self._known: set[Path] = set()
        self.rows = 0

    def refresh(self) -> None:
        """Look what was committed since."""
        logs = {int(path.stem): path for path in self._folder.glob("_spark_metadata/[0-9]*")}
        for number in sorted(logs.keys() - self._batches.keys()):
            lines = logs[number].read_text().splitlines()[1:]  # the first is a version
            files = [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]
            new = [file for file in files if file not in self._known]
            self._batches[number] = new
            self._known.update(new)
            self.rows += sum(pq.read_metadata(file).num_rows for file in new)

    def tables(self) -> Iterator[pa.Table]:
        """A file at a time, in the order of batches."""
        for _, files in sorted(self._batches.items()):
            yield from (pq.ParquetFile(file).read() for file in sorted(files))


class BatchFolders:
    """The output of `write_once`: a folder for each batch, by its number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches: dict[int, list[Path]] = {}
        self.rows = 0

    def refresh(self) -> None:
        for folder in self._folder.glob("batch_id=*"):
            number = int(folder.name.partition("=")[2])
            if number not in self._batches:
                files = sorted(folder.glob("*.parquet"))
                self._batches[number] = files
                self.rows += sum(pq.read_metadata(file).num_rows for file in files)

    def tables(self) -> Iterator[pa.Table]:
        for _, files in sorted(self._batches.items()):
            yield from (pq.ParquetFile(file).read() for file in files)


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
