"""A local Kinesis in this process, whose time the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.application import Application
from sparkinesis.public import public_testing
from sparkinesis.testing.application_run import ApplicationRun
from sparkinesis.testing.quick import quick
from sparkinesis.testing.world import STREAM, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkinesis.testing.query_run import QueryRun

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

    def dataframe(self, spark: SparkSession, stream: str = STREAM, **options: str) -> DataFrame:
        """Return a streaming DataFrame over a stream, which is created if it is missing.

        options: of the source, besides the stream and its place. Default: from the first record.
        """
        from sparkinesis.testing.query_run import dataframe  # noqa: PLC0415 - needs PySpark

        self.create_stream(stream)
        return dataframe(spark, self.endpoint, stream, options)

    def query(
        self, frame: DataFrame, *, output_mode: str = "append", stream: str = STREAM
    ) -> QueryRun:
        """Return a streaming query over a DataFrame, to feed batch by batch in a ``with`` block."""
        from sparkinesis.testing.query_run import QueryRun  # noqa: PLC0415 - needs PySpark

        return QueryRun(self, frame, output_mode, stream)
