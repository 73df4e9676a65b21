"""sparkinesis: a Kinesis Client Library for PySpark.

DataFrames:

    flights = spark.readStream.format("kinesis").option("streamName", "flights").load()

Record processors, as a function (``async def``, too), a class or a loop:

    from sparkinesis import Application, RecordProcessor

    def handle(batch):
        ...

    class Flights(RecordProcessor):
        def process_records(self, batch, checkpointer):
            ...
            checkpointer.checkpoint()

    Application("flights-app", "flights", handle, region="eu-west-1").run()
    Application("flights-app", "flights", Flights, region="eu-west-1").run()

    with Application("flights-app", "flights", region="eu-west-1").batches() as batches:
        for batch in batches:
            ...
            batch.checkpoint()

The same application runs on Spark's executors with ``.run(spark, workers=8)``.

Queues, whose records the service delivers one by one: `sparkinesis.queue`. Other names are on pages
of their own, too: `sparkinesis.errors`, `sparkinesis.events`, `sparkinesis.functions`,
`sparkinesis.metrics`, `sparkinesis.payloads`, `sparkinesis.sinks` and `sparkinesis.status`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.errors import (
    CheckpointError,
    DataLossError,
    FleetError,
    LeaseLostError,
    OptionError,
    ProcessorError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.public import __version__ as __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis import events as events
    from sparkinesis import functions as functions
    from sparkinesis import metrics as metrics
    from sparkinesis import payloads as payloads
    from sparkinesis import queue as queue
    from sparkinesis import sinks as sinks
    from sparkinesis import status as status
    from sparkinesis.application import Application
    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.fleet_options import FleetOptions
    from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
    from sparkinesis.lease.lease import PendingCheckpoint
    from sparkinesis.source.watch import QueryWatch, watch
    from sparkinesis.source.watched_query import lag
    from sparkinesis.stream.address import CredentialSource
    from sparkinesis.stream.kpl.pack import AggregatedBlob, aggregate
    from sparkinesis.stream.kpl.unpack import UserRecordColumns, deaggregate
    from sparkinesis.stream.page import Record
    from sparkinesis.stream.shard import hash_key
    from sparkinesis.worker.aws_options import FanOutOptions, LeaseTableOptions
    from sparkinesis.worker.batches.batch import RecordBatch
    from sparkinesis.worker.batches.user_record import UserRecord
    from sparkinesis.worker.checkpointer import Checkpointer, PreparedCheckpoint
    from sparkinesis.worker.lifecycle.streams.stream_config import FormerStreams, StreamConfig
    from sparkinesis.worker.lifecycle.worker import Worker
    from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
    from sparkinesis.worker.options import WorkerOptions
    from sparkinesis.worker.processors.function_processors import processor
    from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
    from sparkinesis.worker.reporting.log_context import LogContext

__all__ = [
    "AggregatedBlob",
    "Application",
    "CheckpointError",
    "Checkpointer",
    "CredentialSource",
    "DataLossError",
    "DeadLetter",
    "ExtendedSequenceNumber",
    "FanOutOptions",
    "Fleet",
    "FleetError",
    "FleetOptions",
    "FormerStreams",
    "LeaseLostError",
    "LeaseTableOptions",
    "LogContext",
    "OnError",
    "OptionError",
    "PendingCheckpoint",
    "PreparedCheckpoint",
    "ProcessorError",
    "ProcessorShard",
    "QueryWatch",
    "Record",
    "RecordBatch",
    "RecordProcessor",
    "Retry",
    "ServiceError",
    "Skip",
    "SparkinesisError",
    "Stop",
    "StreamConfig",
    "UserRecord",
    "UserRecordColumns",
    "Worker",
    "WorkerOptions",
    "aggregate",
    "deaggregate",
    "hash_key",
    "lag",
    "processor",
    "register",
    "watch",
]

_HOMES = {
    "AggregatedBlob": "stream.kpl.pack",
    "Application": "application",
    "Checkpointer": "worker.checkpointer",
    "CredentialSource": "stream.address",
    "DeadLetter": "worker.on_error",
    "ExtendedSequenceNumber": "lease.extended_sequence_number",
    "FanOutOptions": "worker.aws_options",
    "Fleet": "fleet.fleet",
    "FleetOptions": "fleet.fleet_options",
    "FormerStreams": "worker.lifecycle.streams.stream_config",
    "LeaseTableOptions": "worker.aws_options",
    "LogContext": "worker.reporting.log_context",
    "OnError": "worker.on_error",
    "PendingCheckpoint": "lease.lease",
    "PreparedCheckpoint": "worker.checkpointer",
    "ProcessorShard": "worker.processors.processor",
    "QueryWatch": "source.watch",
    "Record": "stream.page",
    "RecordBatch": "worker.batches.batch",
    "RecordProcessor": "worker.processors.processor",
    "Retry": "worker.on_error",
    "Skip": "worker.on_error",
    "Stop": "worker.on_error",
    "StreamConfig": "worker.lifecycle.streams.stream_config",
    "UserRecord": "worker.batches.user_record",
    "UserRecordColumns": "stream.kpl.unpack",
    "Worker": "worker.lifecycle.worker",
    "WorkerOptions": "worker.options",
    "aggregate": "stream.kpl.pack",
    "deaggregate": "stream.kpl.unpack",
    "hash_key": "stream.shard",
    "lag": "source.watched_query",
    "processor": "worker.processors.function_processors",
    "watch": "source.watch",
}
"""Inner modules of the names. Imported lazily: a Spark query needs none of them, and
importing them would slow down each of Spark's Python processes."""


_PAGES = ("events", "functions", "metrics", "payloads", "queue", "sinks", "status")
"""The other public pages, which ``sparkinesis.status`` finds without an import of its own."""


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415

    if name in _PAGES:
        return import_module(f"sparkinesis.{name}")
    if name in _HOMES:
        return getattr(import_module(f"sparkinesis.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def register(spark: SparkSession, name: str = "kinesis") -> None:
    """Add ``format("kinesis")`` to a Spark session (PySpark 4.2 or newer), or another name of it.

    Spark finds ``kinesis`` by itself where sparkinesis is installed for the Python that Spark
    starts. Call this for another name, where the platform has a ``kinesis`` of its own
    (``register(spark, name="sparkinesis")``; both names then work), or if only this program has
    sparkinesis and ships it (``--py-files``). With Spark Connect the call pickles a class for the
    server, whose Python must then be of the same minor version; without it, any version will do.

    Raises `OptionError` for a name that is not one word of letters, digits and underscores, and if
    the session is local and its workers run a Python without sparkinesis; `ImportError` if PySpark
    is too old.
    """
    from sparkinesis.source import check_pyspark  # noqa: PLC0415

    check_pyspark()
    from sparkinesis.source.datasource import source_named  # noqa: PLC0415
    from sparkinesis.source.spark_python import check_worker_python  # noqa: PLC0415

    source = source_named(name)
    check_worker_python(spark)
    spark.dataSource.register(source)
