"""Where the CPU seconds of the Spark source go: for each million rows, by process and by stage.

Three views of each case, all in one run: the whole query, by process, less a query of a few rows;
the stages of the Python worker, of one page, each by itself; and the floors, which no source can go
below: Spark reading one constant Arrow batch again and again from a data source that does nothing
else, and the base64 and MD5 of the same bytes. A first query of each warms up. All of this with all
columns, and with the two of `FEW`.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cbor2
import pyarrow as pa
import pybase64
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.cpu_seconds import child_running, cpu_of_spark
from benchmarks.local_server import CBOR, Client, local_kinesis
from benchmarks.proc_stat import cpu_of
from benchmarks.report import Result, print_table
from benchmarks.source import (
    CASES,
    REGION,
    UNLIMITED,
    Case,
    fill,
    kinesis_at,
    read,
    spark_session,
)
from sparkinesis.source.row_columns import SCHEMA, read_schema
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.answers.decoding import decode_cbor_page, decode_page
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.reading.arrow import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PROFILED = tuple(case for case in CASES if case.name != "1 KB, aggregated")
ROUNDS = 3
TASKS = 4
LARGE = 10_000
"""Bytes of a record from which a reader asks for pages in CBOR."""
ALL = tuple(field.name for field in SCHEMA)
FEW = ("partitionKey", "data")
MOST_PER_PAGE = 10_000


class ConstantSource(DataSource):
    """A batch read that sends the batch in the file ``path`` ``times`` times in each of 4 tasks."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> StructType:
        return read_schema(self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return ConstantReader(self.options["path"], int(self.options["times"]))


class ConstantReader(DataSourceReader):
    def __init__(self, path: str, times: int) -> None:
        self._path = path
        self._times = times

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        with pa.ipc.open_stream(self._path) as stream:
            batch = stream.read_next_batch()
        for _ in range(self._times):
            yield batch


def per_million(seconds: float, rows: int) -> float:
    return seconds / rows * 1e6


def median_cpu(call: Callable[[], object], rounds: int = 7) -> float:
    """The median CPU seconds of this thread for a call, after one that warms up."""
    call()
    taken = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def stages(
    server: Client, stream: str, case: Case, columns: Sequence[str]
) -> tuple[dict[str, float], pa.RecordBatch]:
    """CPU seconds per million rows of each stage of a page, and the page's rows."""
    address = StreamAddress(stream, None, REGION, server.endpoint)
    client = StreamClient(address)
    [shard_id, *_] = [shard.id for shard in client.list_shards()[0]]
    iterator = client.shard_iterator(shard_id, TRIM_HORIZON)
    request = {"ShardIterator": iterator, "Limit": MOST_PER_PAGE}
    body = server.send("GetRecords", json.dumps(request).encode())
    page = decode_page(body)
    decoder = decode_page
    if len(body) * 3 / 4 >= LARGE * len(page.records):
        body, decoder = server.send("GetRecords", cbor2.dumps(request), CBOR), decode_cbor_page
    text = pybase64.b64encode(b"".join([record.data for record in page.records]))
    data = pybase64.b64decode(text)

    def arrow() -> pa.RecordBatch:
        return to_arrow(page.records, stream=stream, shard_id=shard_id, columns=columns)

    batch = arrow()

    def ipc() -> None:
        with Path("/dev/null").open("wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)

    decode = median_cpu(lambda: decoder(body))
    call = median_cpu(lambda: client.get_records(shard_id, iterator, MOST_PER_PAGE))
    seconds = {
        "stage: call and HTTP": max(call - decode, 0.0),
        f"stage: {decoder.__name__}": decode,
        "stage: to_arrow": median_cpu(arrow),
        "stage: Arrow IPC, without the socket": median_cpu(ipc),
        "floor: base64 of the data": median_cpu(lambda: pybase64.b64decode(text, validate=True)),
    }
    if case.aggregated:
        seconds["floor: MD5 of the data"] = median_cpu(lambda: hashlib.md5(data).digest())
    return {name: per_million(each, batch.num_rows) for name, each in seconds.items()}, batch


def constant(spark: SparkSession, jvm: int, batch: pa.RecordBatch, rows: int) -> dict[str, float]:
    """CPU seconds per million rows of Spark reading the batch again and again."""
    times = max(rows // (TASKS * batch.num_rows), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/batch.arrow"
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)
        source = (
            spark.read.format("constant")
            .option("path", path)
            .option("times", str(times))
            .option("columns", ",".join(batch.schema.names))
        )
        seconds = []
        for _ in range(ROUNDS + 1):
            before = cpu_of_spark(jvm)
            source.load().write.format("noop").mode("overwrite").save()
            seconds.append(difference(cpu_of_spark(jvm), before))
    read_rows = times * TASKS * batch.num_rows
    return {
        f"floor: constant batches, {name}": per_million(each, read_rows)
        for name, each in median_of(seconds[1:]).items()
    }


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}


def median_of(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def whole(
    spark: SparkSession,
    jvm: int,
    server: tuple[int, str],
    stream: str,
    rows: int,
    *,
    columns: Sequence[str],
) -> tuple[dict[str, float], float]:
    """CPU seconds of a query by process, and rows a second of the best round.

    ``server``: the process id and the URL of the local Kinesis.
    """
    pid, endpoint = server
    options = {**UNLIMITED, "columns": ",".join(columns)}
    seconds, rates = [], []
    for number in range(ROUNDS + 1):
        before = {"server": cpu_of(pid), **cpu_of_spark(jvm)}
        batches, taken = read(spark, endpoint, stream, options)
        after = {"server": cpu_of(pid), **cpu_of_spark(jvm)}
        assert sum(batches) == rows
        if number:
            seconds.append(difference(after, before))
            rates.append(rows / taken)
    return median_of(seconds), max(rates)


def measure(spark: SparkSession, jvm: int, case: Case) -> list[Result]:
    with local_kinesis("--no-limits") as server:
        kinesis = kinesis_at(server.endpoint)
        address = (server.server, server.endpoint)
        few = fill(kinesis, "few", case, 1)
        rows = fill(kinesis, "profiled", case, case.rows)
        results = []
        for columns in (ALL, FEW):
            start, _ = whole(spark, jvm, address, "few", few, columns=columns)
            seconds, rate = whole(spark, jvm, address, "profiled", rows, columns=columns)
            by_stage, batch = stages(server, "profiled", case, columns)
            found = {
                f"query without its start: {name}": per_million(each - start[name], rows)
                for name, each in seconds.items()
            }
            found |= by_stage | constant(spark, jvm, batch, rows)
            title = case.name if columns == ALL else f"{case.name}, {', '.join(columns)}"
            results += [
                *(
                    Result(f"{title}, {name}", each, "CPU s per million rows")
                    for name, each in found.items()
                ),
                *(
                    Result(f"{title}, a query of few rows: {name}", each, "CPU s")
                    for name, each in start.items()
                ),
                Result(f"{title}, best of {ROUNDS} rounds", rate, "rows/s"),
            ]
    return results


def run() -> list[Result]:
    spark = spark_session()
    try:
        spark.dataSource.register(ConstantSource)
        jvm = child_running("org.apache.spark.deploy.SparkSubmit")
        return [result for case in PROFILED for result in measure(spark, jvm, case)]
    finally:
        spark.stop()


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
