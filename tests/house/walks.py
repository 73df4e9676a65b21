"""The files that a page, a lease row and a micro-batch pass, recorded in small runs of the package.

    python -m tests.house.walks   # JSON: the files of each walk

A walk begins and ends where a call enters or leaves the package. A file counts if one of its
functions is called in between on each of several walks, by any thread but the local server's: what
other threads happen to do meanwhile does not count. So these are the files that work for a page,
and not only those that hold it.

- page: from the arrival of GetRecords at the server, which answers one record, to
  ``process_records``;
- lease row: from the arrival of a scan of the lease table at the server to that of the next write
  of a row, by the threads that use the table;
- micro-batch: from ``latestOffset``, which finds a record at the tip of each of two shards, to the
  last row of ``read``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql.types import StructType

import sparkinesis
from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions
from sparkinesis.local import Call, LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.source.datasource import KinesisDataSource

TIMES = 4
"""How often each walk is recorded."""
_PACKAGE = str(Path(sparkinesis.__file__).parent) + "/"
_REGION = "us-east-1"
_LONGEST = 60.0
"""Seconds that one walk may take on a busy machine."""
_WRITES = {"BatchExecuteStatement", "ExecuteStatement", "PutItem", "UpdateItem"}


class Recorder:
    """The files whose functions are called between `begin` and `end`, by any thread."""

    def __init__(self, *, folder: str = "") -> None:
        """``folder``: only of threads that call a function below it."""
        self.walks: list[set[str]] = []
        self._folder = folder
        self._now: dict[int, set[str]] | None = None
        self._has_ended = threading.Event()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    @property
    def is_wanted(self) -> bool:
        """True if a walk may begin: none is recorded now, and the last one was waited for."""
        return self._now is None and not self._has_ended.is_set()

    def begin(self) -> None:
        if self.is_wanted:
            self._now = {}

    def end(self) -> None:
        """End the walk that has begun, if one has."""
        if self._now is not None:
            walk, self._now = list(self._now.values()), None
            mine = [
                files
                for files in walk
                if any(file.startswith(self._folder) for file in files)
                and not any(file.startswith("local/") for file in files)
            ]
            self.walks.append(set[str]().union(*mine))
            self._has_ended.set()

    def wait(self) -> None:
        """Wait until a walk has ended; the next one may begin."""
        assert self._has_ended.wait(_LONGEST), "no walk has ended"
        self._has_ended.clear()

    def files(self) -> list[str]:
        """Return the files of all walks, below the package."""
        sys.setprofile(None)
        threading.setprofile(None)
        return sorted(set.intersection(*self.walks))

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        walk = self._now
        if walk is None or event != "call":
            return
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            walk.setdefault(threading.get_ident(), set()).add(file.removeprefix(_PACKAGE))


def page() -> list[str]:
    recorder = Recorder()

    def at_server(call: Call) -> None:
        if call.operation == "GetRecords" and recorder.is_wanted:
            server.kinesis.call("PutRecord", StreamName="s", Data=b"x", PartitionKey="k")
            recorder.begin()

    class Ending(RecordProcessor):
        def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            del batch, checkpointer
            recorder.end()

    with _server(at_server, shards=1) as server, _application(server, Ending, idle_time=0.5):
        for _ in range(TIMES + 1):
            recorder.wait()
    del recorder.walks[0]  # the first page of a shard does more
    return recorder.files()


def lease_row() -> list[str]:
    recorder = Recorder(folder="lease/table/")

    def at_server(call: Call) -> None:
        if call.operation == "Scan":
            recorder.begin()
        elif call.operation in _WRITES:
            recorder.end()

    class Idle(RecordProcessor):
        def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            raise AssertionError("there is no record")

    with _server(at_server, shards=1) as server, _application(server, Idle, idle_time=60.0):
        for _ in range(TIMES + 3):
            recorder.wait()
    del recorder.walks[:3]  # those of the start
    return recorder.files()


def micro_batch() -> list[str]:
    recorder = Recorder()
    with _server(lambda _: None, shards=2) as server:
        options = {
            "streamName": "s",
            "region": _REGION,
            "endpoint": server.endpoint_url,
            "initialPosition": "trim_horizon",
            "minFetchPeriod": "0ms",
        }
        reader = KinesisDataSource(options).streamReader(StructType())
        start = reader.initialOffset()
        for _ in range(TIMES + 1):
            for key in ("0", str(2**127)):
                server.kinesis.call(
                    "PutRecord", StreamName="s", Data=b"x", PartitionKey="k", ExplicitHashKey=key
                )
            recorder.begin()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            rows = [
                batch.num_rows
                for partition in reader.partitions(start, end)
                for batch in reader.read(partition)
            ]
            recorder.end()
            recorder.wait()
            assert sum(rows) == 2, rows
            start = end
        reader.stop()
    del recorder.walks[0]
    return recorder.files()


@contextmanager
def _server(at_server: Callable[[Call], None], shards: int) -> Iterator[LocalServer]:
    """Serve a stream of so many shards, and tables in memory; each call is reported."""
    with LocalServer(limits=None, faults=at_server, lease_tables=LeaseTables()) as server:
        server.kinesis.call("CreateStream", StreamName="s", ShardCount=shards)
        yield server


@contextmanager
def _application(
    server: LocalServer, processor: type[RecordProcessor], *, idle_time: float
) -> Iterator[None]:
    """Run a worker in threads."""
    worker = Application(
        "house",
        "s",
        processor,
        region=_REGION,
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(failover_time=3.0, idle_time=idle_time),
    ).worker()
    worker.start()
    try:
        yield
    finally:
        worker.shutdown()


WALKS = {"page": page, "lease row": lease_row, "micro-batch": micro_batch}


def main() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")
    print(json.dumps({name: walk() for name, walk in WALKS.items()}, indent=2))


if __name__ == "__main__":
    main()
