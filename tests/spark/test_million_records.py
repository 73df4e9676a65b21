"""A million user records through 16 shards, their resharding and a crash: each exactly once.

P2's test shows the same with fewer records.
"""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkinesis.stream.kpl.pack import aggregate
from tests.spark.million_query import DIGITS
from tests.spark.query_process import kill, open_batches, query_process, wait_until
from tests.spark.reading import REGION
from tests.streams import merge_neighbours, split

COUNT = 1_000_000
PLAIN_AT_A_TIME = 490
"""Of a PutRecords call with up to 500 records: three times as many are in aggregates."""
PLAIN_ONE_IN = 4
FILLER = b"." * 60
Reshard = Callable[..., object]
QUERY = "tests.spark.million_query"


class Producer(threading.Thread):
    """Puts the numbers up to ``count``, three in four aggregated, as fast as shards take."""

    def __init__(self, kinesis: Any, stream: str, count: int) -> None:
        super().__init__(daemon=True)
        self._kinesis = kinesis
        self._stream = stream
        self._count = count
        self._rng = random.Random(count)
        self._permission = threading.Condition()
        self._allowed = 0
        self.put = 0
        self.refused = 0
        """Records that a shard's limits did not let in at once."""
        self.seconds = 0.0
        self.failure: BaseException | None = None

    def allow(self, count: int) -> None:
        """Let the records before this number go."""
        with self._permission:
            self._allowed = count
            self._permission.notify()

    def run(self) -> None:
        started = time.monotonic()
        try:
            while self.put < self._count:
                with self._permission:
                    self._permission.wait_for(lambda: self._allowed > self.put)
                self._put_some()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failure = error
        self.seconds = time.monotonic() - started

    def _put_some(self) -> None:
        numbers = range(self.put, min(self.put + PLAIN_ONE_IN * PLAIN_AT_A_TIME, self._count))
        users = [
            (str(self._rng.getrandbits(64)), None, b"%0*d" % (DIGITS, n) + FILLER) for n in numbers
        ]
        plain = users[::PLAIN_ONE_IN]
        del users[::PLAIN_ONE_IN]
        packed = aggregate(users)
        entries = [{"Data": data, "PartitionKey": key} for key, _, data in plain]
        entries += [{"Data": a.data, "PartitionKey": a.partition_key} for a in packed]
        while entries:
            batch, rest = entries[:500], entries[500:]
            results = self._kinesis.put_records(StreamName=self._stream, Records=batch)["Records"]
            refused = [e for e, r in zip(batch, results, strict=True) if "ErrorCode" in r]
            self.refused += len(refused)
            entries = refused + rest
            if refused:
                time.sleep(0.05)  # the shard's rate, not another thread, is what it waits for
        self.put += len(numbers)


@contextmanager
def server_process(log: Path) -> Iterator[str]:
    """A local Kinesis with the service's limits, in a process of its own; gives its endpoint."""
    command = [sys.executable, "-m", "sparkinesis.local", "--port", "0", "--json"]
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            [*command, "--region", REGION, "--stream-delay-ms", "0"],
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["endpoint"]
        finally:
            process.kill()


@pytest.mark.long
def test_a_million_user_records_exactly_once(stream_name: str, tmp_path: Path) -> None:
    output, log = tmp_path / "output", tmp_path / "query.log"
    output.mkdir()
    started = time.monotonic()

    def numbers() -> pa.ChunkedArray:
        """What is in the sink: sorted within each batch."""
        parts = sorted(output.glob("batch-*.parquet"))
        return pa.chunked_array([c for p in parts for c in pq.read_table(p)["number"].chunks])

    def delivered() -> int:
        return sum(pq.read_metadata(part).num_rows for part in output.glob("batch-*.parquet"))

    with server_process(tmp_path / "server.log") as endpoint:
        kinesis = boto3.client("kinesis", region_name=REGION, endpoint_url=endpoint)
        kinesis.create_stream(StreamName=stream_name, ShardCount=16)
        arguments = [endpoint, stream_name, str(tmp_path / "checkpoint"), str(output)]
        producer = Producer(kinesis, stream_name, COUNT)
        producer.start()

        def put(wanted: int) -> bool:
            assert producer.failure is None, producer.failure
            return producer.put >= wanted

        def reshard_at(query: subprocess.Popen[bytes], reshards: dict[int, Reshard]) -> None:
            for number, (tenths, reshard) in enumerate(reshards.items()):
                wait_until(functools.partial(put, tenths * COUNT // 10), query, log, every=0.1)
                reshard(kinesis, stream_name, index=3 * number)

        producer.allow(COUNT // 5)
        with query_process(QUERY, arguments, log) as query:
            wait_until(delivered, query, log, every=0.1)
            producer.allow(COUNT // 2)
            reshard_at(query, {3: split, 4: merge_neighbours, 5: split})
            begun = open_batches(output, "parquet")
            producer.allow(COUNT * 3 // 5)
            wait_until(lambda: open_batches(output, "parquet") - begun, query, log)
            kill(query)  # the batch has begun this very moment
            interrupted = open_batches(output, "parquet")
        assert interrupted, "the query was killed in a batch"
        producer.allow(COUNT)
        with query_process(QUERY, arguments, log) as query:
            reshard_at(query, {7: merge_neighbours, 9: split})
            wait_until(lambda: put(COUNT) and delivered() >= COUNT, query, log, every=0.2)
            seconds = time.monotonic() - started
        kinesis.close()
    print(f"{seconds:.0f} s; put in {producer.seconds:.0f} s, {producer.refused} refused")
    assert np.array_equal(np.sort(numbers().to_numpy()), np.arange(COUNT, dtype=np.int32))
