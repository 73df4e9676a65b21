"""A local Kinesis in this process, whose time the test moves, and the queries that run on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparkinesis.application import Application
from sparkinesis.public import public_testing
from sparkinesis.queue.application import QueueApplication
from sparkinesis.testing.application_run import ApplicationRun
from sparkinesis.testing.queue_run import QueueRun
from sparkinesis.testing.world import REGION, STREAM, Given, World, quick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from typing_extensions import Self

_TIMEOUT = 10.0


@public_testing
class Sandbox(World):
    """A Kinesis and its lease tables in this process, ready at once, whose time stands still.

    Only `advance` moves the time: that of records' arrival, of the service, and of workers. Within
    the block, the environment has credentials for the local Kinesis, and none of AWS. The limits of
    Kinesis do not apply. All streams are in one region and one account.

    Use it in a ``with`` block; the fixture ``kinesis`` of pytest is one. For one thread.
    """

    def application(self, application: Application) -> Application:
        """Return an application for this Kinesis, whose waits are short.

        For what a test starts itself: a loop, ``run_async`` or ``worker()``.
        """
        return quick(application, self.endpoint)

    def run(
        self, application: Application, *, shards: int = 1, timeout: float = _TIMEOUT
    ) -> ApplicationRun:
        """Return a run of an application on this Kinesis, to use in a ``with`` block.

        The application is the one of production: the run gives it this endpoint and short waits,
        and leaves exporters of metrics out.

        shards: the number of shards of its streams, which are created if they are missing.
        timeout: the most seconds to wait for anything.
        """
        run = ApplicationRun(self, application, timeout)
        for name in run.streams:
            self.create_stream(name, shards)
        return run

    def queue(
        self, application: QueueApplication, *, twice: bool = False, timeout: float = _TIMEOUT
    ) -> QueueRun:
        """Return a run of an application that consumes a queue, to use in a ``with`` block.

        The application is the one of production, as in `Sandbox.run`. Its stream and its queue are
        made if they are missing. The queue has the attributes of ``create``, and begins with the
        first record of the stream.

        twice: each record is delivered again after its first acknowledgement, as the service does
        on rare occasions: the effects of a handler have to be the same. timeout: the most seconds
        to wait for anything.
        """
        return QueueRun(self, application, twice, timeout)

    def dataframe(self, spark: SparkSession, stream: str = STREAM, **options: str) -> DataFrame:
        """Return a streaming DataFrame over a stream, which is created if it is missing.

        options: of the source, besides the stream and its place. Default: from the first record.
        """
        self.create_stream(stream)
        return _dataframe(spark, self.endpoint, stream, options)

    def query(
        self, frame: DataFrame, *, output_mode: str = "append", stream: str = STREAM
    ) -> QueryRun:
        """Return a streaming query over a DataFrame, to feed batch by batch in a ``with`` block."""
        return QueryRun(self, frame, output_mode, stream)


_QUICK = {
    "initialPosition": "trim_horizon",
    "minFetchPeriod": "0 seconds",
    "shardCallsPerSecond": "unlimited",
    "shardBytesPerSecond": "unlimited",
}
"""A query on a local Kinesis without limits waits for nothing."""


def _dataframe(
    spark: SparkSession, endpoint: str, stream: str, options: Mapping[str, str]
) -> DataFrame:
    """Return a streaming DataFrame over a stream of a local Kinesis."""
    from sparkinesis.source.datasource import KinesisDataSource  # noqa: PLC0415 - needs PySpark

    spark.dataSource.register(KinesisDataSource)
    place = {"streamName": stream, "region": REGION, "endpoint": endpoint}
    return spark.readStream.format("kinesis").options(**{**place, **_QUICK, **options}).load()


@public_testing
class QueryRun:
    """A streaming query over a DataFrame of a `Sandbox`; `Sandbox.query` makes it.

    The block begins the query, with a checkpoint folder of its own, and stops it.
    """

    def __init__(self, world: World, frame: DataFrame, output_mode: str, stream: str) -> None:
        self._world = world
        self._frame = frame
        self._output_mode = output_mode
        self._stream = stream
        self._folder = ""
        self._rows: list[Row] = []
        self._query: StreamingQuery | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="sparkinesis-query-")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.query.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def query(self) -> StreamingQuery:
        """Spark's query. Raises RuntimeError outside of the block."""
        if self._query is None:
            raise RuntimeError("the query runs in a block: with kinesis.query(frame) as query:")
        return self._query

    def feed(self, records: Iterable[Given] = ()) -> list[Row]:
        """Put records, let the query process all that it can, and return the rows that it wrote.

        The query plans by the time of the sandbox: move it first, to close a window. Raises the
        error that ended the query.
        """
        self._world.put(records, self._stream)
        self.query.processAllAvailable()
        rows, self._rows = self._rows, []
        return rows

    def restart(self) -> None:
        """Stop the query, and resume it from its checkpoint."""
        self.query.stop()
        self._start()

    def _start(self) -> None:
        def keep(batch: DataFrame, _: int) -> None:
            self._rows += batch.collect()

        writer = self._frame.writeStream.outputMode(self._output_mode).foreachBatch(keep)
        self._query = writer.option("checkpointLocation", self._folder).start()
