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

The same application runs on Spark's executors with ``.run(spark, workers=8)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.errors import (
    AccessDeniedError,
    CheckpointError,
    ConsumerLimitError,
    ConsumerNotFoundError,
    CorruptEventStreamError,
    DataLossError,
    DeadLetterError,
    DuplicateWorkerIdError,
    ExpiredIteratorError,
    FleetError,
    InconsistentShardsError,
    LeaseLostError,
    LeaseTableError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    LocalServerError,
    OffsetError,
    OptionError,
    PositionNotFoundError,
    ProcessorError,
    RecordRefusedError,
    RecordTooLargeError,
    SchemaMismatchError,
    ServiceError,
    ShardNotFoundError,
    SinkUnavailableError,
    SparkinesisError,
    StreamNotFoundError,
    UnfinishedResetError,
)
from sparkinesis.version import __version__ as __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.status import (
        FleetShard,
        FleetState,
        FleetStatus,
        FleetStream,
        UnreadShard,
        WorkerState,
        WorkerStatus,
    )
    from sparkinesis.lease.events import (
        ChildrenUnlisted,
        ChildrenWaiting,
        HandoffRequested,
        LeaseCreated,
        LeaseDeleted,
        LeaseEnd,
        LeaseEnded,
        LeaseOrigin,
        LeaseReadable,
        LeasesMissing,
        LeaseTaken,
        LeaseUnreadable,
        LeaseUnwritable,
        LegacyWorkerSeen,
        OwnerSilent,
        ParentsLost,
        RenewalFailed,
        RenewalRecovered,
        ShutdownBegan,
        WorkerEnded,
        WorkerReport,
        WorkerStarted,
    )
    from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
    from sparkinesis.lease.lease import PendingCheckpoint
    from sparkinesis.metrics.cloudwatch.emf_metrics import EmfMetrics
    from sparkinesis.metrics.metric import Measured
    from sparkinesis.metrics.metrics import MetricsExporter
    from sparkinesis.metrics.opentelemetry import OpenTelemetryMetrics
    from sparkinesis.metrics.prometheus_registry import PrometheusMetrics
    from sparkinesis.source.watching.query_lag import StreamLag, lag
    from sparkinesis.source.watching.watch import QueryWatch, watch
    from sparkinesis.stream.credentials import CredentialSource
    from sparkinesis.stream.kpl.pack import AggregatedBlob, aggregate
    from sparkinesis.stream.kpl.unpack import UserRecordColumns, deaggregate
    from sparkinesis.stream.page import Record
    from sparkinesis.stream.routing import hash_key
    from sparkinesis.worker.application import Application
    from sparkinesis.worker.batches.batch import RecordBatch
    from sparkinesis.worker.batches.user_record import UserRecord
    from sparkinesis.worker.checkpointer import Checkpointer, PreparedCheckpoint
    from sparkinesis.worker.dead_letters.targets import (
        DeadLetterDirectory,
        DeadLetterStream,
        FailedRecords,
    )
    from sparkinesis.worker.fleet_options import FleetOptions
    from sparkinesis.worker.lifecycle.states import ShardState
    from sparkinesis.worker.lifecycle.streams.stream_config import FormerStreams, StreamConfig
    from sparkinesis.worker.lifecycle.worker import Worker
    from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
    from sparkinesis.worker.options import FanOutOptions, LeaseTableOptions, WorkerOptions
    from sparkinesis.worker.processor import ProcessorShard, RecordProcessor
    from sparkinesis.worker.reporting.cloudwatch import CloudWatchMetrics
    from sparkinesis.worker.reporting.events import (
        BatchAction,
        BatchFailed,
        CheckpointRefused,
        ConsumerDeregistered,
        DataLost,
        DeadLettersStored,
        Event,
        FormerStreamDeleted,
        FormerStreamKept,
        OldRecordsSkipped,
        PollingInstead,
        ProcessingTimeExceeded,
        ReaderDied,
        RecordsSkipped,
        ShardEnded,
        ShardEvent,
        ShardStarted,
        ShardStopped,
        ShardSyncFailed,
        ShardSyncRecovered,
        ShutdownOverdue,
        StreamEvent,
        StreamFailing,
        StreamMadeAnew,
        StreamReadable,
        StreamRemoved,
        TableFound,
        TableMissing,
        TakingFailed,
        TakingRecovered,
        TaskFailed,
        TroubleBegan,
        TroubleEnded,
        WorkerFailed,
    )
    from sparkinesis.worker.reporting.log_context import LogContext
    from sparkinesis.worker.sink.sink import ParquetSink
    from sparkinesis.worker.status import Failure, ShardStatus, StreamStatus

__all__ = [
    "AccessDeniedError",
    "AggregatedBlob",
    "Application",
    "BatchAction",
    "BatchFailed",
    "CheckpointError",
    "CheckpointRefused",
    "Checkpointer",
    "ChildrenUnlisted",
    "ChildrenWaiting",
    "CloudWatchMetrics",
    "ConsumerDeregistered",
    "ConsumerLimitError",
    "ConsumerNotFoundError",
    "CorruptEventStreamError",
    "CredentialSource",
    "DataLossError",
    "DataLost",
    "DeadLetter",
    "DeadLetterDirectory",
    "DeadLetterError",
    "DeadLetterStream",
    "DeadLettersStored",
    "DuplicateWorkerIdError",
    "EmfMetrics",
    "Event",
    "ExpiredIteratorError",
    "ExtendedSequenceNumber",
    "FailedRecords",
    "Failure",
    "FanOutOptions",
    "Fleet",
    "FleetError",
    "FleetOptions",
    "FleetShard",
    "FleetState",
    "FleetStatus",
    "FleetStream",
    "FormerStreamDeleted",
    "FormerStreamKept",
    "FormerStreams",
    "HandoffRequested",
    "InconsistentShardsError",
    "LeaseCreated",
    "LeaseDeleted",
    "LeaseEnd",
    "LeaseEnded",
    "LeaseLostError",
    "LeaseOrigin",
    "LeaseReadable",
    "LeaseTableError",
    "LeaseTableNotFoundError",
    "LeaseTableOptions",
    "LeaseTableUnavailableError",
    "LeaseTaken",
    "LeaseUnreadable",
    "LeaseUnwritable",
    "LeasesMissing",
    "LegacyWorkerSeen",
    "LocalServerError",
    "LogContext",
    "Measured",
    "MetricsExporter",
    "OffsetError",
    "OldRecordsSkipped",
    "OnError",
    "OpenTelemetryMetrics",
    "OptionError",
    "OwnerSilent",
    "ParentsLost",
    "ParquetSink",
    "PendingCheckpoint",
    "PollingInstead",
    "PositionNotFoundError",
    "PreparedCheckpoint",
    "ProcessingTimeExceeded",
    "ProcessorError",
    "ProcessorShard",
    "PrometheusMetrics",
    "QueryWatch",
    "ReaderDied",
    "Record",
    "RecordBatch",
    "RecordProcessor",
    "RecordRefusedError",
    "RecordTooLargeError",
    "RecordsSkipped",
    "RenewalFailed",
    "RenewalRecovered",
    "Retry",
    "SchemaMismatchError",
    "ServiceError",
    "ShardEnded",
    "ShardEvent",
    "ShardNotFoundError",
    "ShardStarted",
    "ShardState",
    "ShardStatus",
    "ShardStopped",
    "ShardSyncFailed",
    "ShardSyncRecovered",
    "ShutdownBegan",
    "ShutdownOverdue",
    "SinkUnavailableError",
    "Skip",
    "SparkinesisError",
    "Stop",
    "StreamConfig",
    "StreamEvent",
    "StreamFailing",
    "StreamLag",
    "StreamMadeAnew",
    "StreamNotFoundError",
    "StreamReadable",
    "StreamRemoved",
    "StreamStatus",
    "TableFound",
    "TableMissing",
    "TakingFailed",
    "TakingRecovered",
    "TaskFailed",
    "TroubleBegan",
    "TroubleEnded",
    "UnfinishedResetError",
    "UnreadShard",
    "UserRecord",
    "UserRecordColumns",
    "Worker",
    "WorkerEnded",
    "WorkerFailed",
    "WorkerOptions",
    "WorkerReport",
    "WorkerStarted",
    "WorkerState",
    "WorkerStatus",
    "aggregate",
    "deaggregate",
    "hash_key",
    "lag",
    "register",
    "watch",
]

_LAZY = {
    "fleet.fleet": ("Fleet",),
    "fleet.status": (
        "FleetShard",
        "FleetState",
        "FleetStatus",
        "FleetStream",
        "UnreadShard",
        "WorkerState",
        "WorkerStatus",
    ),
    "lease.events": (
        "ChildrenUnlisted",
        "ChildrenWaiting",
        "HandoffRequested",
        "LeaseCreated",
        "LeaseDeleted",
        "LeaseEnd",
        "LeaseEnded",
        "LeaseOrigin",
        "LeaseReadable",
        "LeaseTaken",
        "LeaseUnreadable",
        "LeaseUnwritable",
        "LeasesMissing",
        "LegacyWorkerSeen",
        "OwnerSilent",
        "ParentsLost",
        "RenewalFailed",
        "RenewalRecovered",
        "ShutdownBegan",
        "WorkerEnded",
        "WorkerReport",
        "WorkerStarted",
    ),
    "lease.extended_sequence_number": ("ExtendedSequenceNumber",),
    "lease.lease": ("PendingCheckpoint",),
    "metrics.cloudwatch.emf_metrics": ("EmfMetrics",),
    "metrics.metric": ("Measured",),
    "metrics.metrics": ("MetricsExporter",),
    "metrics.opentelemetry": ("OpenTelemetryMetrics",),
    "metrics.prometheus_registry": ("PrometheusMetrics",),
    "source.watching.query_lag": (
        "StreamLag",
        "lag",
    ),
    "source.watching.watch": (
        "QueryWatch",
        "watch",
    ),
    "stream.credentials": ("CredentialSource",),
    "stream.kpl.pack": (
        "AggregatedBlob",
        "aggregate",
    ),
    "stream.kpl.unpack": (
        "UserRecordColumns",
        "deaggregate",
    ),
    "stream.page": ("Record",),
    "stream.routing": ("hash_key",),
    "worker.application": ("Application",),
    "worker.batches.batch": ("RecordBatch",),
    "worker.batches.user_record": ("UserRecord",),
    "worker.checkpointer": (
        "Checkpointer",
        "PreparedCheckpoint",
    ),
    "worker.dead_letters.targets": (
        "DeadLetterDirectory",
        "DeadLetterStream",
        "FailedRecords",
    ),
    "worker.fleet_options": ("FleetOptions",),
    "worker.lifecycle.states": ("ShardState",),
    "worker.lifecycle.worker": ("Worker",),
    "worker.on_error": (
        "DeadLetter",
        "OnError",
        "Retry",
        "Skip",
        "Stop",
    ),
    "worker.options": (
        "FanOutOptions",
        "LeaseTableOptions",
        "WorkerOptions",
    ),
    "worker.processor": (
        "ProcessorShard",
        "RecordProcessor",
    ),
    "worker.reporting.cloudwatch": ("CloudWatchMetrics",),
    "worker.reporting.events": (
        "BatchAction",
        "BatchFailed",
        "CheckpointRefused",
        "ConsumerDeregistered",
        "DataLost",
        "DeadLettersStored",
        "Event",
        "FormerStreamDeleted",
        "FormerStreamKept",
        "OldRecordsSkipped",
        "PollingInstead",
        "ProcessingTimeExceeded",
        "ReaderDied",
        "RecordsSkipped",
        "ShardEnded",
        "ShardEvent",
        "ShardStarted",
        "ShardStopped",
        "ShardSyncFailed",
        "ShardSyncRecovered",
        "ShutdownOverdue",
        "StreamEvent",
        "StreamFailing",
        "StreamMadeAnew",
        "StreamReadable",
        "StreamRemoved",
        "TableFound",
        "TableMissing",
        "TakingFailed",
        "TakingRecovered",
        "TaskFailed",
        "TroubleBegan",
        "TroubleEnded",
        "WorkerFailed",
    ),
    "worker.reporting.log_context": ("LogContext",),
    "worker.sink.sink": ("ParquetSink",),
    "worker.status": (
        "Failure",
        "ShardStatus",
        "StreamStatus",
    ),
    "worker.lifecycle.streams.stream_config": (
        "FormerStreams",
        "StreamConfig",
    ),
}
"""Inner modules and their public names. Imported lazily: a Spark query needs none of them, and
importing them would slow down each of Spark's Python processes."""


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415

    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"sparkinesis.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def register(spark: SparkSession) -> None:
    """Add ``format("kinesis")`` to a Spark session (PySpark 4.2 or newer).

    Raises `OptionError` if the session is local and its workers run a Python without sparkinesis.
    """
    from sparkinesis.source.datasource import KinesisDataSource  # noqa: PLC0415
    from sparkinesis.source.worker_python import check_worker_python  # noqa: PLC0415

    check_worker_python(spark)
    spark.dataSource.register(KinesisDataSource)
