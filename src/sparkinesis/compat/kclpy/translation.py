"""Translation of amazon_kclpy's properties file to an application. Makes no calls.

The keys and their meanings are those of the daemon's configuration (KCL 3.5), with two corrections:
false and 0 override other defaults, and ``streamArn`` is used as a whole.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sparkinesis.application import Application
from sparkinesis.compat.kclpy import properties, worker_keys
from sparkinesis.compat.kclpy.properties import Entry, decode, parse, require_one_stream
from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.stream.address import FOUND_BY_BOTO, CredentialSource
from sparkinesis.worker.aws_options import LeaseTableOptions
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.options import DEFAULT_OPTIONS, DEFAULT_SHARD_CALLS, WorkerOptions
from sparkinesis.worker.processors.processor import ProcessorFactory

PROPERTIES_VARIABLE = "SPARKINESIS_KCLPY_PROPERTIES"
"""The environment variable that names the properties file."""

_log = logging.getLogger(__name__)


Parser = Callable[[str], Any]

_WORKER_KEYS: Mapping[str, tuple[str, Parser]] = {
    "failoverTimeMillis": ("failover_time", properties.millis(100)),
    "maxLeasesForWorker": ("max_leases", properties.integer(1)),
    "maxLeasesToStealAtOneTime": ("max_leases_to_steal", properties.integer(1)),
    "gracefulLeaseHandoffTimeoutMillis": ("handoff_timeout", properties.millis()),
    "maxRecords": ("max_records", properties.integer(1, 10_000)),
    "idleTimeBetweenReadsInMillis": ("idle_time", properties.millis()),
    "maxPendingProcessRecordsInput": ("max_pages_ahead", properties.integer(1)),
    "maxCacheByteSize": ("max_bytes_ahead", properties.integer(1)),
    "maxRecordsCount": ("max_records_ahead", properties.integer(1)),
    "callProcessRecordsEvenForEmptyRecordList": ("call_even_for_empty_batches", properties.boolean),
    "parentShardPollIntervalMillis": ("parent_poll_interval", properties.millis()),
    "taskBackoffTimeMillis": ("task_backoff", properties.millis()),
    "cleanupLeasesUponShardCompletion": ("cleanup_leases", properties.boolean),
    "logWarningForTaskAfterMillis": ("processing_time_limit", properties.millis(1, None)),
    "shutdownGraceMillis": ("shutdown_timeout", properties.millis()),
}
"""Keys that set an option of the worker."""

_TABLE_KEYS: Mapping[str, tuple[str, Parser]] = {
    "billingMode": ("billing_mode", properties.choice("PAY_PER_REQUEST", "PROVISIONED")),
    "initialLeaseTableReadCapacity": ("read_capacity", properties.integer(1)),
    "initialLeaseTableWriteCapacity": ("write_capacity", properties.integer(1)),
    "leaseTablePitrEnabled": ("point_in_time_recovery", properties.boolean),
    "leaseTableDeletionProtectionEnabled": ("deletion_protection", properties.boolean),
}
"""Keys that set an option of the lease table."""

_OTHER_KEYS: Mapping[str, Parser] = {
    **worker_keys.RETRIEVAL_KEYS,
    **worker_keys.METRICS_KEYS,
    "applicationName": properties.name("an application name", 1, 255),
    "tableName": properties.name("a table name", 3, 255),
    "streamName": properties.name("a stream name", 1, 128),
    "streamArn": properties.stream_arn,
    "regionName": properties.region,
    "kinesisEndpoint": properties.endpoint,
    "dynamoDBEndpoint": properties.endpoint,
    "workerId": str,
    "initialPositionInStream": properties.position,
    "initialPositionInStreamExtended": properties.instant,
    "isGracefulLeaseHandoffEnabled": properties.boolean,
    "timeoutInSeconds": properties.seconds,
    "AwsCredentialsProvider": properties.credential_provider,
    "AWSCredentialsProvider": properties.credential_provider,
    "AwsCredentialsProviderDynamoDB": properties.credential_provider,
    "AWSCredentialsProviderDynamoDB": properties.credential_provider,
    "executableName": str,
}

_PARSERS: Mapping[str, Parser] = {
    **{key: read for key, (_, read) in (*_WORKER_KEYS.items(), *_TABLE_KEYS.items())},
    **_OTHER_KEYS,
}

_IGNORED = frozenset(
    {
        "processingLanguage",
        "maxActiveThreads",
        "leaseAssignmentIntervalMillis",
        "enablePriorityLeaseAssignment",
        "shardSyncIntervalMillis",
        "maxLeaseRenewalThreads",
        "leaseTableScanTotalSegments",
        "ignoreUnexpectedChildShards",
        "listShardsBackoffTimeInMillis",
        "maxListShardsRetryAttempts",
        "inMemoryWorkerMetricsCaptureFrequencyMillis",
        "workerMetricsReporterFreqInMillis",
        "noOfPersistedMetricsPerWorkerMetrics",
        "disableWorkerMetrics",
        "maxThroughputPerHostKBps",
        "dampeningPercentage",
        "reBalanceThresholdPercentage",
        "allowThroughputOvershoot",
        "varianceBalancingFrequency",
        "workerMetricsEMAAlpha",
        "staleWorkerMetricsEntryCleanupDuration",
        "workerMetricsTableName",
        "workerMetricsBillingMode",
        "workerMetricsReadCapacity",
        "workerMetricsWriteCapacity",
        "workerMetricsPointInTimeRecoveryEnabled",
        "workerMetricsDeletionProtectionEnabled",
        "workerMetricsTags",
        "coordinatorStateTableName",
        "coordinatorStateBillingMode",
        "coordinatorStateReadCapacity",
        "coordinatorStateWriteCapacity",
        "coordinatorStatePointInTimeRecoveryEnabled",
        "coordinatorStateDeletionProtectionEnabled",
        "coordinatorStateTags",
        "clientVersionConfig",
        "migrateAllEntitiesToLeaseTable",
        "tableMigrationCompleteBakeTimeSeconds",
        "schedulerInitializationBackoffTimeMillis",
        "skipShardSyncAtWorkerInitializationIfLeasesExist",
        "readTimeoutsToIgnoreBeforeWarning",
        "validateSequenceNumberBeforeCheckpointing",
        "millisBehindLatestThresholdForReducedTps",
        "retryGetRecordsInSeconds",
        "maxGetRecordsThreadPool",
    }
)
"""Keys of the daemon that have no equivalent here."""

_CREDENTIALS = ("AwsCredentialsProvider", "AWSCredentialsProvider")
_CREDENTIALS_OF_TABLE = ("AwsCredentialsProviderDynamoDB", "AWSCredentialsProviderDynamoDB")

_SHORTEST_IDLE_TIME = 0.2
"""Seconds: the KCL raises a shorter ``idleTimeBetweenReadsInMillis`` to this."""

_IGNORED_PREFIX = "fanoutConfig."


def read_application(file: Path, processor: ProcessorFactory, on_error: OnError) -> Application:
    """Read a properties file. Raises `OptionError`, which names file, line and key."""
    return parse_application(_text(file), str(file), processor, on_error)


def read_executable(file: Path) -> str:
    """Return the command in ``executableName``. Raises `OptionError` if there is none."""
    entries = [entry for entry in parse(_text(file), str(file)) if entry.key == "executableName"]
    if not entries or not entries[-1].value.strip():
        raise OptionError(
            f"{file} has no executableName; add the command that starts your program."
        )
    return entries[-1].value.strip()


def _text(file: Path) -> str:
    try:
        return decode(file.read_bytes())
    except OSError as error:
        raise OptionError(
            f"The properties file {file} cannot be read: {error.strerror or error}."
        ) from error


def parse_application(
    text: str, file: str, processor: ProcessorFactory, on_error: OnError
) -> Application:
    """Parse the text of a properties file; ``file``: its name, for errors."""
    lines = list(parse(text, file))
    require_one_stream(lines, file)
    entries = _known({entry.key.strip(): entry for entry in lines}, file)
    settings = _Settings(entries, file)
    check_all(settings.checks())
    given = settings.given
    arn, arn_region, arn_name = given.get("streamArn", (None, None, None))
    if arn_name and given.get("streamName", arn_name) != arn_name:
        _log.warning(
            "%s: streamArn (of stream %s) takes precedence over streamName (%s).",
            file, arn_name, given["streamName"],
        )  # fmt: skip
    return Application(
        given["applicationName"],
        arn or given["streamName"],
        processor,
        region=given.get("regionName", arn_region),
        endpoint=given.get("kinesisEndpoint"),
        dynamodb_endpoint=given.get("dynamoDBEndpoint"),
        initial_position=given.get(
            "initialPositionInStreamExtended", given.get("initialPositionInStream", "latest")
        ),
        on_error=on_error,
        worker_id=given.get("workerId"),
        options=settings.options,
        credentials=settings.credentials,
        table_name=given.get("tableName"),
    )


class _Settings:
    """The values of a properties file. `checks` reads them."""

    def __init__(self, entries: Mapping[str, Entry], file: str) -> None:
        self._entries = entries
        self._file = file
        self.given: dict[str, Any] = {}
        """The values by key."""
        self.options = DEFAULT_OPTIONS

    @property
    def credentials(self) -> CredentialSource:
        return next((self.given[key] for key in _CREDENTIALS if key in self.given), FOUND_BY_BOTO)

    def checks(self) -> Iterator[Check]:
        """Yield the checks of each key, and those of several together."""
        for key in self._entries:
            yield (key,), partial(self._read, key)
        yield ("streamArn", "streamName"), self._check_stream
        yield ("streamArn", "regionName"), self._check_region
        yield ("applicationName",), self._check_name
        yield (*_CREDENTIALS, *_CREDENTIALS_OF_TABLE), self._check_credentials
        yield (), self._make_options

    def _read(self, key: str) -> None:
        self.given[key] = _read(self._entries[key], key, self._file)

    def _refusal(self, key: str, why: str) -> OptionError:
        return OptionError(f"{self._file}, line {self._entries[key].line}: {key} {why}")

    def _check_stream(self) -> None:
        if "streamArn" not in self.given and "streamName" not in self.given:
            raise OptionError(f"{self._file} names no stream; add streamArn or streamName.")

    def _check_region(self) -> None:
        _, arn_region, _ = self.given.get("streamArn", (None, None, None))
        region = self.given.get("regionName", arn_region)
        if arn_region and region != arn_region:
            raise self._refusal(
                "regionName",
                f"is {region}, but streamArn names a stream in {arn_region}. amazon_kclpy reads "
                "the stream of that name in regionName, sparkinesis the stream of the ARN: make "
                "them agree, or remove one of them.",
            )

    def _check_name(self) -> None:
        if "applicationName" not in self.given:
            raise OptionError(f"{self._file} names no application; add applicationName.")
        application = self.given["applicationName"]
        if len(application) < 3 and "tableName" not in self._entries:
            raise self._refusal(
                "applicationName",
                f"is {application!r}. It is also the name of the DynamoDB table: use at least 3 "
                "characters, or add tableName.",
            )

    def _check_credentials(self) -> None:
        for key in _CREDENTIALS_OF_TABLE:
            if self.given.get(key, self.credentials) != self.credentials:
                raise self._refusal(
                    key,
                    "differs from AwsCredentialsProvider. sparkinesis uses the same credentials "
                    "for the stream and the lease table: remove this key, and give "
                    "AwsCredentialsProvider access to both.",
                )

    def _make_options(self) -> None:
        self.options = _options(self.given, self._file)


def _known(entries: Mapping[str, Entry], file: str) -> Mapping[str, Entry]:
    """Return the entries with a known key and a value; log the other keys."""
    known: dict[str, Entry] = {}
    ignored: list[str] = []
    for key, entry in entries.items():
        if key in _PARSERS:
            if entry.value.strip():
                known[key] = entry
        elif key in _IGNORED or key.startswith(_IGNORED_PREFIX):
            ignored.append(key)
        else:
            near = difflib.get_close_matches(key, [*_PARSERS, *_IGNORED], n=1, cutoff=0.6)
            _log.warning(
                "%s, line %d: %s is not a known key and is ignored.%s",
                file, entry.line, key, f" Did you mean {near[0]}?" if near else "",
            )  # fmt: skip
    if "metricsLevel" not in known:
        ignored += [key for key in worker_keys.METRICS_KEYS if key in known]
    if ignored:
        _log.info(
            "%s: these keys have no equivalent in sparkinesis and are ignored: %s.",
            file,
            ", ".join(ignored),
        )
    return known


def _read(entry: Entry, key: str, file: str) -> Any:
    try:
        return _PARSERS[key](entry.value.strip())
    except ValueError as error:
        # An error must not show an external id, or the password or query in a URL.
        is_url = "Endpoint" in key and "?" in entry.value
        is_secret = "Credentials" in key or "@" in entry.value or is_url
        value = "cannot be used" if is_secret else f"is {entry.value.strip()[:200]!r}"
        raise OptionError(f"{file}, line {entry.line}: {key} {value}; {error}.") from None


def _options(given: Mapping[str, Any], file: str) -> WorkerOptions:
    worker = {option: given[key] for key, (option, _) in _WORKER_KEYS.items() if key in given}
    if given.get("isGracefulLeaseHandoffEnabled") is False:
        worker["handoff_timeout"] = 0.0
    if "timeoutInSeconds" in given:
        # The daemon ends its process then; here only the shard's lease is given up.
        worker |= {"processing_time_limit": given["timeoutInSeconds"], "give_up_after_limit": True}
    if "idle_time" in worker:
        worker |= _read_every(worker["idle_time"], file)
    table = {option: given[key] for key, (option, _) in _TABLE_KEYS.items() if key in given}
    try:
        worker |= worker_keys.retrieval_options(given)
        metrics = worker_keys.exporters(given)
        return WorkerOptions(**worker, table=LeaseTableOptions(**table), metrics=metrics)
    except OptionError as error:
        raise OptionError(f"{file}: {error}") from error


def _read_every(idle_time: float, file: str) -> dict[str, float]:
    """Return the options for a read every ``idle_time`` seconds, as the daemon reads."""
    if idle_time < _SHORTEST_IDLE_TIME:
        _log.info(
            "%s: idleTimeBetweenReadsInMillis is %.0f, and is raised to %.0f, as in the KCL: that "
            "is all the calls that a shard permits.",
            file, 1000 * idle_time, 1000 * _SHORTEST_IDLE_TIME,
        )  # fmt: skip
        idle_time = _SHORTEST_IDLE_TIME
    return {
        "idle_time": idle_time,
        "shard_calls_per_second": max(DEFAULT_SHARD_CALLS, 1 / idle_time),
    }
