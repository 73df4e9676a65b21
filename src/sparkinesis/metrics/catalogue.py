"""Every metric of sparkinesis, once: its kind, unit, labels, level, and its name in each system.

The name in Prometheus follows from name, unit and kind (`Metric.prometheus_name`); those in
CloudWatch and OpenTelemetry are the KCL for Java's where it has the metric. ``docs/metrics.md`` is
made of this table.
"""

from __future__ import annotations

from functools import partial

from sparkinesis.metrics.metric import KclName, Kind, Level, Metric, Scope, Unit

_FETCH = "KinesisDataFetcher."
_DETAILED = Level.DETAILED


def _when(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(labels.items())


_counter = partial(Metric, kind=Kind.COUNTER, unit=Unit.COUNT, scope=Scope.WORKER)
_bytes = partial(Metric, kind=Kind.COUNTER, unit=Unit.BYTES, scope=Scope.WORKER)
_histogram = partial(Metric, kind=Kind.HISTOGRAM, unit=Unit.SECONDS, scope=Scope.WORKER)
_gauge = partial(Metric, kind=Kind.GAUGE, unit=Unit.COUNT, scope=Scope.WORKER)
_seconds_gauge = partial(Metric, kind=Kind.GAUGE, unit=Unit.SECONDS, scope=Scope.WORKER)
_fleet = partial(Metric, scope=Scope.FLEET)
_outside = partial(Metric, kind=Kind.GAUGE, unit=Unit.SECONDS, scope=Scope.FLEET)
_query = partial(Metric, scope=Scope.QUERY)

# fmt: off
# ---- Calls to Kinesis (layer stream) ----

CALL_DURATION = _histogram(
    name="call.duration", labels=("stream", "shard", "operation", "result"), level=_DETAILED,
    help="Attempts of calls to Kinesis. result: ok, throttled, expired, retryable, failed.",
    kcl=(
        KclName(
            "ProcessTask", _FETCH + "getRecords.", _DETAILED,
            _when(operation="GetRecords"),
        ),
        KclName(
            "ProcessTask", _FETCH + "getShardIterator.", _DETAILED,
            _when(operation="GetShardIterator"),
        ),
    ),
)
CALL_RETRIES = _counter(
    name="call.retries", labels=("stream", "operation", "reason"),
    help="Failed attempts of calls to Kinesis that are made again. reason: throttled, retryable, "
    "doubted (a sequence number is refused; believed if it is refused again).",
)
RECORDS_FETCHED = _counter(
    name="records.fetched", labels=("stream", "shard"),
    help="Records received, as the stream stores them: an aggregated record counts once.",
)
BYTES_FETCHED = _bytes(
    name="bytes.fetched", labels=("stream", "shard"),
    help="Bytes received, about as they count against a shard's limit.",
)
ITERATORS_EXPIRED = _counter(
    name="iterators.expired", labels=("stream", "shard"),
    help="Shard iterators that expired before they were used: fetching paused for five minutes.",
    kcl=(KclName("ProcessTask", "ExpiredIterator", by_shard=False),),
)
SUBSCRIPTIONS_ENDED = _counter(
    name="subscriptions.ended", labels=("stream", "shard", "reason"),
    help="Subscriptions of enhanced fan-out that ended. reason: expired (after five minutes), "
    "shard ended, broken, taken over, refused (never began), failed, closed.",
)

# ---- Leases (layer lease) ----

LEASES_HELD = _gauge(
    name="leases.held",
    help="Leases that this worker holds.",
    kcl=(KclName("RenewAllLeases", "CurrentLeases"),),
)
LEASES_TOTAL = _gauge(
    name="leases.total",
    help="Leases of unfinished shards by this worker's last scan of the lease table, those of "
    "streams that the application no longer reads included.",
    kcl=(
        KclName("TakeLeases", "TotalLeases", _DETAILED),
        KclName("LeaseAssignmentManager", "TotalLeases"),
    ),
)
LEASES_UNREAD = _gauge(
    name="leases.unread",
    help="Shards that no live worker reads, by this worker's last scan of the lease table.",
)
TABLE_UNSEEN = _seconds_gauge(
    name="table.unseen",
    help="Time since this worker has last seen the whole lease table, or since its start.",
)
LEASES_EXPIRED = _gauge(
    name="leases.expired",
    help="Leases that nobody has renewed for a failover time, those without an owner included, by "
    "this worker's last scan.",
    kcl=(
        KclName("TakeLeases", "ExpiredLeases"),
        KclName("LeaseAssignmentManager", "ExpiredLeases"),
    ),
)
WORKERS = _gauge(
    name="workers",
    help="Workers that hold leases, by this worker's last scan of the lease table.",
    kcl=(
        KclName("TakeLeases", "NumWorkers"),
        KclName("LeaseAssignmentManager", "NumWorkers"),
    ),
)
LEADER = _gauge(
    name="leader", level=_DETAILED,
    help="1 if this worker does the application's audits and cleanups, else 0.",
    kcl=(KclName("LeaderDecider", "LeaderDecider:IsLeader", _DETAILED),),
)
LEASES_TAKEN = _counter(
    name="leases.taken", labels=("stream", "shard", "origin"),
    help="Leases acquired. origin: unowned, handed over, expired, late handover, legacy owner, "
    "own.",
    kcl=(KclName("TakeLeases", "TakenLeases"),),
)
LEASES_REQUESTED = _counter(
    name="leases.requested", labels=("stream", "shard"),
    help="Leases requested from their owners, to balance the load (stealing).",
)
LEASES_LOST = _counter(
    name="leases.lost", labels=("stream", "shard", "reason"),
    help="Leases that ended without intention: expired, taken, reset, deleted, stopped, ...",
    kcl=(KclName("RenewAllLeases", "LostLeases"),),
)
LEASES_RELEASED = _counter(
    name="leases.released", labels=("stream", "shard", "reason"),
    help="Leases given up as part of a healthy application: handed over, shard finished, shutdown.",
)
RENEWAL_DURATION = _histogram(
    name="renewal.duration", labels=("result",),
    help="Rounds in which a worker renews all of its leases. result: ok, failed.",
    kcl=(KclName("RenewAllLeases", ""),),
    otel_name="RenewLease.Time",
)
TAKE_DURATION = _histogram(
    name="take.duration", labels=("result",),
    help="Rounds in which a worker scans the lease table and takes leases. result: ok, failed.",
    kcl=(
        KclName("TakeLeases", ""),
        KclName("LeaseAssignmentManager", ""),
    ),
)
TABLE_CALL_DURATION = _histogram(
    name="table.call.duration", labels=("operation", "result"), level=_DETAILED,
    help="Attempts of calls to DynamoDB. result: ok, refused (a condition failed), throttled, "
    "retryable, failed.",
    kcl=(
        KclName("TakeLeases", "ListLeases.", _DETAILED, _when(operation="Scan")),
        KclName(
            "ShardSyncTask", "CreateLease.", _DETAILED, _when(operation="PutItem"),
            # A lease that another worker has created is there.
            successes=("ok", "refused"),
        ),
    ),
)
SHARD_SYNC_DURATION = _histogram(
    name="shard.sync.duration", labels=("stream", "result"),
    help="Comparisons of a stream's shards with its leases, and what followed. result: ok, failed.",
    kcl=(
        KclName("PeriodicShardSyncManager", ""),
        KclName("ShardSyncTask", "SyncShards.Success", _DETAILED),
    ),
)
LEASES_CREATED = _counter(
    name="leases.created", labels=("stream",), level=_DETAILED,
    help="Leases created for shards that had none.",
)
LEASES_DELETED = _counter(
    name="leases.deleted", labels=("stream",), level=_DETAILED,
    help="Leases deleted because their shards are finished or gone.",
)

# ---- The streams of an application of several (layer worker) ----

STREAMS = _gauge(
    name="streams",
    help="Streams that the application is to read.",
    kcl=(KclName("MultiStreamTracker", "ActiveStreams.Count"),),
)
STREAM_UNREADABLE = _seconds_gauge(
    name="stream.unreadable", labels=("stream",),
    help="Time for which this worker cannot read a stream of the application, or cannot find it; "
    "no series while it can.",
)
STREAMS_FORMER = _gauge(
    name="streams.former",
    help="Streams with leases that the application does not read: they have left it, or were "
    "deleted. By this worker's last scan.",
    kcl=(KclName("MultiStreamTracker", "StreamsPendingDeletion.Count"),),
)
STREAMS_DELETED = _counter(
    name="streams.deleted",
    help="Streams that had left the application, and whose leases this worker has deleted.",
    kcl=(KclName("MultiStreamTracker", "DeletedStreams.Count"),),
)

# ---- Processing (layer worker) ----

RECORDS_PROCESSED = _counter(
    name="records.processed", labels=("stream", "shard"),
    help="User records in successful calls of process_records.",
    kcl=(KclName("ProcessTask", "RecordsProcessed"),),
)
BYTES_PROCESSED = _bytes(
    name="bytes.processed", labels=("stream", "shard"),
    help="Bytes of data of these user records.",
    kcl=(KclName("ProcessTask", "DataBytesProcessed"),),
)
PROCESS_DURATION = _histogram(
    name="process.records.duration", labels=("stream", "shard", "result"),
    help="Calls of process_records. result: ok, failed.",
    kcl=(
        KclName("ProcessTask", "RecordProcessor.processRecords.Time"),
        KclName("ProcessTask", ""),
    ),
)
PROCESSING_FOR = _seconds_gauge(
    name="processing.age", labels=("stream", "shard"),
    help="Duration of the present call of process_records; 0 between two calls.",
)
EVENT_LOOP_LAG = _seconds_gauge(
    name="event.loop.lag",
    help="Time that the event loop of coroutines took to answer last, or has not answered for. No "
    "series in a worker without coroutines.",
)
INITIALIZE_DURATION = _histogram(
    name="initialize.duration", labels=("stream", "shard", "result"),
    help="Calls of a record processor's initialize. result: ok, failed.",
    kcl=(KclName("InitializeTask", "RecordProcessor.initialize.Time"),),
)
SHUTDOWN_DURATION = _histogram(
    name="shutdown.duration", labels=("stream", "shard", "result"),
    help="Calls of lease_lost, shard_ended and shutdown_requested. result: ok, failed.",
    kcl=(KclName("ShutdownTask", "RecordProcessor.shutdown.Time"),),
)
BATCHES_FAILED = _counter(
    name="batches.failed", labels=("stream", "shard", "action"),
    help="Calls of process_records that raised. action: retry, split, skip, dead letter, stop, "
    "wait, release, none left.",
)
RECORDS_SKIPPED = _counter(
    name="records.skipped", labels=("stream", "shard"),
    help="User records that on_error skipped without storing them.",
)
DEAD_LETTERS = _counter(
    name="dead.letters", labels=("stream", "shard"),
    help="User records that on_error stored as dead letters.",
)
CHECKPOINT_DURATION = _histogram(
    name="checkpoint.duration", labels=("stream", "shard", "result"),
    help="Checkpoints written to the lease table. result: ok, refused (the lease is gone), failed.",
    kcl=(KclName("ProcessTask", "UpdateLease.", _DETAILED),),
)
CHECKPOINT_AGE = _seconds_gauge(
    name="checkpoint.age", labels=("stream", "shard"),
    help="Time since the shard's last checkpoint, or since this worker took the shard; 0 while "
    "everything delivered is checkpointed.",
)
PAUSED_AGE = _seconds_gauge(
    name="paused.age", labels=("stream", "shard"),
    help="Time for which the program has paused the shard. No series of a shard that is not "
    "paused.",
)
LAG = _seconds_gauge(
    name="lag", labels=("stream", "shard"),
    help="Age of the records that are being read or processed: the MillisBehindLatest of the last "
    "page, or the age of the oldest record that is fetched and not processed, if that is more. No "
    "series of a paused shard.",
)
APPLICATION_LAG = _seconds_gauge(
    name="application.lag",
    help="The largest lag of the shards that this worker reads.",
)
PAGE_LAG = _seconds_gauge(
    name="page.lag", labels=("stream", "shard"),
    help="The MillisBehindLatest of the service for the last page, as KCLs report it: it grows no "
    "older while the page is processed. No series of a paused shard.",
    kcl=(KclName("ProcessTask", "MillisBehindLatest"),),
)
APPLICATION_PAGE_LAG = _seconds_gauge(
    name="application.page.lag",
    help="The largest MillisBehindLatest of the shards that this worker reads.",
    kcl=(KclName("ApplicationTracker", "MillisBehindLatest"),),
    otel_name="",  # else one name with `PAGE_LAG`
)
STANDING_AGE = _seconds_gauge(
    name="standing.age", labels=("stream", "shard"),
    help="Time for which the shard makes no progress although records, or a task, wait: a call "
    "does not return, or fails again and again. No series of a shard where nothing waits.",
)
BYTES_HELD = _gauge(
    name="bytes.held", unit=Unit.BYTES,
    help="Memory of records that wait for record processors or are being processed.",
)
DATA_LOSS = _counter(
    name="data.loss", labels=("stream", "shard"),
    help="Times that a worker found records gone that it had not read: retention has trimmed them.",
)
RECORDS_FILTERED = _counter(
    name="records.filtered", labels=("stream", "shard"), level=_DETAILED,
    help="User records that hash_range_filter dropped.",
)

EVENTS_DROPPED = _counter(
    name="events.dropped",
    help="Events that on_event did not get: it was too slow, or the worker had ended.",
)

# ---- Sinks ----

SINK_FILES = _counter(
    name="sink.files", labels=("stream",),
    help="Files that a ParquetSink has committed.",
)
SINK_ROWS = _counter(
    name="sink.rows", labels=("stream",),
    help="Rows in these files.",
)
SINK_DURATION = _histogram(
    name="sink.commit.duration", labels=("stream", "result"),
    help="Commits of files to a sink's storage. result: ok, failed.",
)

# ---- Queues (layer queue) ----

QUEUE_RECEIVED = _counter(
    name="queue.received", labels=("queue",),
    help="Records received from the queue, redeliveries included: an aggregate counts once.",
)
QUEUE_REDELIVERED = _counter(
    name="queue.redelivered", labels=("queue",),
    help="Records received that were delivered before: a handler failed, or a hold was lost.",
)
QUEUE_AGE = _histogram(
    name="queue.age", labels=("queue",),
    help="Time from the arrival of the oldest record of a receive to the receive.",
)
QUEUE_EMPTY_RECEIVES = _counter(
    name="queue.empty.receives", labels=("queue",),
    help="Receives that waited for records and brought none.",
)
QUEUE_RECEIVES_FAILED = _counter(
    name="queue.receives.failed", labels=("queue", "code"),
    help="Receives that failed, by the service's error code.",
)
QUEUE_IN_HAND = _gauge(
    name="queue.held", labels=("queue",),
    help="Records that this worker holds: received, and neither acknowledged nor returned.",
)
QUEUE_FAILED = _counter(
    name="queue.failed", labels=("queue",),
    help="User records whose handler raised, or that it named as failed.",
)
QUEUE_ACKNOWLEDGED = _counter(
    name="queue.acknowledged", labels=("queue",),
    help="Records acknowledged.",
)
QUEUE_EXTENSIONS = _counter(
    name="queue.extensions", labels=("queue",),
    help="Holds extended.",
)
QUEUE_HOLDS_LOST = _counter(
    name="queue.holds.lost", labels=("queue", "state"),
    help="Holds that ended before their record was acknowledged: it is delivered again. state: "
    "waiting (no handler had begun), running, ended (the acknowledgement came too late).",
)
QUEUE_REFUSALS = _counter(
    name="queue.refusals", labels=("queue", "call", "code"),
    help="Records for which an extension, an acknowledgement or a return failed, by the service's "
    "error code. call: extend, acknowledge, return.",
)

# ---- Fleets ----

FLEET_WANTED = _fleet(
    name="fleet.workers.wanted", kind=Kind.GAUGE, unit=Unit.COUNT,
    help="Workers that the fleet was asked for.",
)
FLEET_RUNNING = _fleet(
    name="fleet.workers.running", kind=Kind.GAUGE, unit=Unit.COUNT,
    help="Workers that run on executors.",
)
FLEET_WAITING = _fleet(
    name="fleet.workers.waiting", kind=Kind.GAUGE, unit=Unit.COUNT,
    help="Workers that wait for a slot of an executor, or have not reported yet.",
)
FLEET_RESTARTS = _fleet(
    name="fleet.restarts", kind=Kind.COUNTER, unit=Unit.COUNT,
    help="Workers and Spark jobs of the fleet that were started again.",
)

# ---- From outside: sparkinesis exporter ----

SHARD_LAG = _outside(
    name="shard.lag", labels=("stream", "shard"),
    help="Age of the first record behind the shard's checkpoint, or the time for which no live "
    "worker has read the shard, if that is longer.",
)
SHARD_OWNER = _outside(
    name="shard.owner", labels=("stream", "shard", "owner"), unit=Unit.COUNT,
    help="1 for the worker that owns the shard's lease, dead or alive.",
)
SHARD_UNREAD = _outside(
    name="shard.unread", labels=("stream", "shard"),
    help="Time for which no live worker has read the shard, since the exporter began; 0 if one "
    "does.",
)
SHARD_CHECKPOINT_AGE = _outside(
    name="shard.checkpoint.age", labels=("stream", "shard"),
    help="Time for which the shard's checkpoint stands still although there are records behind it, "
    "since the exporter began.",
)
TABLE_LOOK_AGE = _outside(
    name="table.look.age",
    help="Time since the exporter has last seen the lease table, or since its start.",
)

# ---- Spark queries (layer source) ----

QUERY_LAG = _query(
    name="query.lag", kind=Kind.GAUGE, unit=Unit.SECONDS, labels=("stream", "shard"),
    help="Age of the records that the query reads, for each shard; of more than 20, the worst.",
)
QUERY_LAG_MAX = _query(
    name="query.lag.max", kind=Kind.GAUGE, unit=Unit.SECONDS, labels=("stream",),
    help="The largest lag of the stream's shards.",
)
QUERY_LAG_MEAN = _query(
    name="query.lag.mean", kind=Kind.GAUGE, unit=Unit.SECONDS, labels=("stream",),
    help="The mean lag of the stream's shards.",
)
QUERY_ROWS = _query(
    name="query.rows", kind=Kind.COUNTER, unit=Unit.COUNT, labels=("stream",),
    help="Rows that the query has read, as Spark counts them. A source of several streams counts "
    "them together: stream is then a list of names.",
)
QUERY_BYTES = _query(
    name="query.bytes", kind=Kind.COUNTER, unit=Unit.BYTES, labels=("stream",),
    help="Bytes of data of these rows, about: by the mean of the records that plans looked at.",
)
QUERY_BATCH_DURATION = _query(
    name="query.batch.duration", kind=Kind.HISTOGRAM, unit=Unit.SECONDS,
    help="Micro-batches, planning included.",
)
QUERY_PLANNING_DURATION = _query(
    name="query.planning.duration", kind=Kind.HISTOGRAM, unit=Unit.SECONDS, labels=("stream",),
    help="Plans of micro-batches, without pauses. A source plans all of its streams together.",
)
QUERY_PROBES = _query(
    name="query.probes", kind=Kind.COUNTER, unit=Unit.COUNT, labels=("stream",),
    help="Calls of GetRecords by which plans look at shards, each attempt.",
)
QUERY_THROTTLED = _query(
    name="query.throttled", kind=Kind.COUNTER, unit=Unit.COUNT, labels=("stream",),
    help="Calls of plans that Kinesis has throttled, each attempt. Those of readers are not "
    "counted.",
)
QUERY_RANGES = _query(
    name="query.ranges", kind=Kind.COUNTER, unit=Unit.COUNT, labels=("stream",),
    help="Ranges of records that batches read: one for each shard from which a batch reads.",
)
QUERY_LIMIT_FILLED = _query(
    name="query.limit.filled", kind=Kind.GAUGE, unit=Unit.COUNT, labels=("stream",),
    help="Share of maxRecordsPerTrigger or maxBytesPerTrigger that the batch that was planned last "
    "fills: if it stays near 1, the limit holds the query back. No series without a limit.",
)
QUERY_DATA_LOSS = _query(
    name="query.data.loss", kind=Kind.COUNTER, unit=Unit.COUNT, labels=("stream",),
    help="Times that a plan found records gone that the query had not read, and went on.",
)
QUERY_LATE_ROWS = _query(
    name="query.late.rows", kind=Kind.COUNTER, unit=Unit.COUNT,
    help="Rows that the query's watermark dropped as late.",
)
QUERY_FAILURES = _query(
    name="query.failures", kind=Kind.COUNTER, unit=Unit.COUNT, labels=("error",),
    help="Runs of the query that ended with an error. error: a class such as DataLossError, or "
    "Spark's error class.",
)
QUERY_RUNNING = _query(
    name="query.running", kind=Kind.GAUGE, unit=Unit.COUNT,
    help="1 while the query runs, else 0.",
)
QUERY_PROGRESS_AGE = _query(
    name="query.progress.age", kind=Kind.GAUGE, unit=Unit.SECONDS,
    help="Time since the query ended a batch, or found that there is nothing to read.",
)
# fmt: on

CATALOGUE: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All metrics, in the order above."""

SCRAPED = tuple(metric for metric in CATALOGUE if metric not in {PAGE_LAG, APPLICATION_PAGE_LAG})
"""The metrics that Prometheus has: `LAG` in place of the KCL's, whose names are those of CloudWatch
and OpenTelemetry. Each series of a shard costs a scrape of 1,000 shards a quarter more."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in CATALOGUE}
