"""sparkinesis: a Kinesis Client Library for PySpark.

DataFrames:

    import sparkinesis

    sparkinesis.register(spark)
    flights = spark.readStream.format("kinesis").option("streamName", "flights").load()

Record processors:

    from sparkinesis import Application, RecordProcessor

    class Flights(RecordProcessor):
        def process_records(self, batch, checkpointer):
            ...
            checkpointer.checkpoint()

    Application("flights-app", "flights", Flights, region="eu-west-1").run()

and the same on Spark's executors: ``.run(spark, workers=8)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.errors import (
    AccessDeniedError,
    CheckpointError,
    ConsumerLimitError,
    ConsumerNotFoundError,
    DataLossError,
    DuplicateWorkerIdError,
    FleetError,
    LeaseLostError,
    LeaseTableError,
    LeaseTableUnavailableError,
    OptionError,
    ProcessorError,
    RecordRefusedError,
    SchemaMismatchError,
    ServiceError,
    SinkUnavailableError,
    SparkinesisError,
    StreamNotFoundError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.status import FleetStatus
    from sparkinesis.stream.credentials import CredentialSource
    from sparkinesis.worker.application import Application
    from sparkinesis.worker.batch import RecordBatch, UserRecord
    from sparkinesis.worker.checkpointer import Checkpointer, PreparedCheckpoint
    from sparkinesis.worker.dead_letters.targets import (
        DeadLetterDirectory,
        DeadLetterStream,
        FailedRecords,
    )
    from sparkinesis.worker.fleet_options import FleetOptions
    from sparkinesis.worker.lifecycle.worker import Worker
    from sparkinesis.worker.on_error import DeadLetter, Retry, Skip, Stop
    from sparkinesis.worker.options import FanOutOptions, LeaseTableOptions, WorkerOptions
    from sparkinesis.worker.processor import ProcessorShard, RecordProcessor
    from sparkinesis.worker.reporting.log_context import LogContext
    from sparkinesis.worker.sink.sink import ParquetSink

__all__ = [
    "AccessDeniedError",
    "Application",
    "CheckpointError",
    "Checkpointer",
    "ConsumerLimitError",
    "ConsumerNotFoundError",
    "CredentialSource",
    "DataLossError",
    "DeadLetter",
    "DeadLetterDirectory",
    "DeadLetterStream",
    "DuplicateWorkerIdError",
    "FailedRecords",
    "FanOutOptions",
    "Fleet",
    "FleetError",
    "FleetOptions",
    "FleetStatus",
    "LeaseLostError",
    "LeaseTableError",
    "LeaseTableOptions",
    "LeaseTableUnavailableError",
    "LogContext",
    "OptionError",
    "ParquetSink",
    "PreparedCheckpoint",
    "ProcessorError",
    "ProcessorShard",
    "RecordBatch",
    "RecordProcessor",
    "RecordRefusedError",
    "Retry",
    "SchemaMismatchError",
    "ServiceError",
    "SinkUnavailableError",
    "Skip",
    "SparkinesisError",
    "Stop",
    "StreamNotFoundError",
    "UserRecord",
    "Worker",
    "WorkerOptions",
    "register",
]

_LATER = {
    "stream.credentials": ("CredentialSource",),
    "worker.application": ("Application",),
    "worker.batch": ("RecordBatch", "UserRecord"),
    "worker.checkpointer": ("Checkpointer", "PreparedCheckpoint"),
    "worker.dead_letters.targets": ("DeadLetterDirectory", "DeadLetterStream", "FailedRecords"),
    "worker.reporting.log_context": ("LogContext",),
    "fleet.fleet": ("Fleet",),
    "worker.fleet_options": ("FleetOptions",),
    "fleet.status": ("FleetStatus",),
    "worker.on_error": ("DeadLetter", "Retry", "Skip", "Stop"),
    "worker.options": ("FanOutOptions", "LeaseTableOptions", "WorkerOptions"),
    "worker.processor": ("ProcessorShard", "RecordProcessor"),
    "worker.sink.sink": ("ParquetSink",),
    "worker.lifecycle.worker": ("Worker",),
}
"""Modules and their public names, imported when they are asked for: a Spark query needs none of
them, and each of Spark's Python processes would wait for them."""


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415

    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"sparkinesis.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Make ``format("kinesis")`` known to a Spark session (PySpark 4.2 or newer)."""
    from sparkinesis.source.datasource import KinesisDataSource  # noqa: PLC0415

    spark.dataSource.register(KinesisDataSource)
