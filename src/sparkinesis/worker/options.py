"""The options of a worker. The defaults are the KCL's, where the KCL has the option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.events import Event
from sparkinesis.lease.shards.shard_syncer import ShardSyncSettings
from sparkinesis.metrics.health.http_address import parse_address
from sparkinesis.metrics.metrics import MetricsExporter
from sparkinesis.public import public
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL
from sparkinesis.stream.reading.budget import FASTEST, SLOWEST, Pace
from sparkinesis.worker.aws_options import (
    DEFAULT_FAN_OUT,
    FanOutOptions,
    LeaseTableOptions,
    at_least,
    require_listener,
    shown_value,
    type_checks,
)

LONGEST_WAIT = 3_600.0
"""Seconds: the longest of the waits that the KCL's options give in milliseconds."""

Bytes: TypeAlias = int

Rate: TypeAlias = float | Literal["unlimited"]

UNLIMITED: Literal["unlimited"] = "unlimited"

DEFAULT_IDLE_TIME = 1.0

DEFAULT_SHARD_CALLS = 4.0
"""Kinesis allows five GetRecords calls a second for each shard; one is left for other readers."""

# Others may be longer, such as `skip_older_than`.
_WAITS = (
    "failover_time",
    "handoff_timeout",
    "idle_time",
    "parent_poll_interval",
    "task_backoff",
    "audit_interval",
    "cleanup_interval",
    "shutdown_timeout",
)


def _check_wait(name: str, seconds: float) -> None:
    """Raise `OptionError` for a wait of over an hour: most likely it is meant in milliseconds."""
    if seconds > LONGEST_WAIT:
        raise OptionError(
            f"{name} is {seconds:g} seconds, which is {seconds / 3600:.1f} hours; it must be "
            f"at most {LONGEST_WAIT:,.0f}, one hour. The KCL's options are in milliseconds, "
            f"these are in seconds: did you mean {seconds / 1000:g}?"
        )


DEFAULT_HELD_BYTES = 512 * 1_048_576
"""512 MiB: a worker of 200 shards with slow processors fits into a container of 2 GiB."""

_MIB = 1_048_576


class AheadLimits(msgspec.Struct, frozen=True):
    """The most that may wait for one shard's record processor."""

    pages: int
    bytes: int
    records: int


@public
@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker. Durations are in seconds, and waits at most an hour.

    Raises `OptionError` for a value that cannot be used.
    """

    failover_time: float = 10.0
    """Default: 10 s. A lease that is not renewed for this long is taken by another worker (KCL
    ``failoverTimeMillis``). All workers of an application must have the same value. Shorter:
    quicker failover, more calls to DynamoDB."""
    max_leases: int = 2**31 - 1
    """Default: unlimited. The most shards that this worker reads (KCL ``maxLeasesForWorker``)."""
    max_leases_to_steal: int = 2**31 - 1
    """Default: unlimited. The most leases to steal at one time (KCL ``maxLeasesToStealAtOneTime``).
    The KCL's default of 1 balances slowly."""
    balance: Literal["count", "load", "throughput"] = "count"
    """Default: "count", by which each worker has as many shards as the others. With "load", a
    leader assigns the shards, as in a KCL 3.x, by the CPU utilization of the workers' machines or
    containers, or by throughput where that cannot be measured; with "throughput", by that alone.
    Beside Java workers of a KCL 3.x, whose leader assigns the shards, this is how the worker
    assigns them once it is the leader (KCL ``leaseAssignmentStrategy``). No KCL before 3.5 may
    share a lease table with a leader."""
    handoff_timeout: float = 30.0
    """Default: 30 s. The time in which the owner of a stolen lease may finish its batch and
    checkpoint (KCL ``gracefulLeaseHandoffTimeoutMillis``)."""
    retrieval: Literal["polling", "efo"] = "polling"
    """Default: "polling", which fetches by GetRecords. With "efo" (enhanced fan-out), the service
    pushes records to a registered consumer. The consumer has its own 2 MiB/s per shard, and is
    billed. The KCL's default is enhanced fan-out."""
    fan_out: FanOutOptions = DEFAULT_FAN_OUT
    """The registered consumer; for ``retrieval="efo"`` only."""
    max_records: int = MAX_RECORDS_PER_CALL
    """Default: 10,000. The most records of one GetRecords call, 1 to 10,000 (KCL ``maxRecords``).
    With enhanced fan-out, the service alone chooses how many records come at once."""
    idle_time: float = DEFAULT_IDLE_TIME
    """Default: 1 s. The wait between two GetRecords calls at the tip of a shard (KCL
    ``idleTimeBetweenReadsInMillis``). Shorter: lower latency, more calls. Below 0.25 s it needs a
    higher ``shard_calls_per_second``; 0 calls as often as that permits. Enhanced fan-out does not
    wait."""
    shard_calls_per_second: Rate = DEFAULT_SHARD_CALLS
    """Default: 4. The most GetRecords calls on a shard in a second, also while behind, and as many
    GetShardIterator calls. Kinesis takes 5 of each, from all readers of the shard together: 4 leave
    one for others. Lower: more applications can poll the stream. Higher than 5, or ``"unlimited"``,
    is for a local Kinesis without limits. A call follows the answer to the one before by at least
    this distance and ``idle_time``, whichever is longer. The KCL has no such option."""
    shard_bytes_per_second: Rate = 2_000_000.0
    """Default: 2,000,000, of the 2 MiB that Kinesis returns from a shard in a second to all
    GetRecords calls together. A page of more than that delays the next call. ``"unlimited"`` is for
    a local Kinesis without limits. Enhanced fan-out has its own throughput. The KCL has no such
    option."""
    max_held_bytes: Bytes = DEFAULT_HELD_BYTES
    """Default: 512 MiB. The most memory for records that wait for record processors or are being
    processed. Workers of one process with the same value share one limit, over all of their shards.
    Unpacked records count with the memory that they take as Python objects. A shard without records
    always gets a little memory, so that no shard waits for another shard's processor. The KCL has
    no such limit."""
    max_pages_ahead: int = 4
    """Default: 4. The most GetRecords answers or events that may wait for a shard's record
    processor before fetching pauses (KCL ``maxPendingProcessRecordsInput``)."""
    max_bytes_ahead: Bytes = 8 * _MIB
    """Default: 8 MiB. The same limit in bytes of data (KCL ``maxByteSize``; ``maxCacheByteSize`` in
    1.x)."""
    max_records_ahead: int = 30_000
    """Default: 30,000. The same limit in records, as the stream stores them (KCL
    ``maxRecordsCount``)."""
    call_even_for_empty_batches: bool = False
    """Default: False. True calls ``process_records`` also with a batch without records, so that a
    processor can act on time (KCL ``callProcessRecordsEvenForEmptyRecordList``)."""
    deaggregate: bool = True
    """Default: True. Unpack the user records of KPL aggregated records."""
    hash_range_filter: bool = False
    """Default: False. True drops the user records that a KPL puts again after a reshard: those with
    keys outside the shard's hash range, from aggregates that a KPL put by key, in shards that came
    of a reshard. (The KCL always drops the whole aggregate.) All other records are delivered,
    whatever their keys: records that are not aggregated or are damaged, aggregates of other
    producers, all records with ``deaggregate=False``, and all records while the stream distributes
    records itself. ``worker.status()`` counts the dropped records."""
    skip_older_than: float | None = None
    """Default: None, deliver everything. A number skips records that arrived longer ago than this;
    0 skips records that arrived before the worker started. With a number, a shard that is blocked
    for longer continues at the bound; only the batch that blocks it is delivered in full. The KCL
    has no such option."""
    processing_time_limit: float | None = None
    """Default: None. Logs an error for each call of ``process_records`` that takes longer (KCL
    ``logWarningForTaskAfterMillis``)."""
    standstill_warning: float | None = 60.0
    """Default: 60 s. Logs a warning once a shard makes no progress for so long, because a call does
    not return or fails again and again, and then ever more rarely; nothing is ended. None: no
    warnings. The KCL has no such option."""
    give_up_after_limit: bool = False
    """Default: False. True also releases the shard's lease when ``processing_time_limit`` is
    exceeded: another worker resumes at the last checkpoint."""
    checkpoint_seconds: float | None = None
    """Default: None, off. Checkpoints what was processed without error at most this long after its
    processing began, between two calls of ``process_records``, and when the worker shuts down, the
    shard moves or ends. 0: after each batch. The KCL has no such option."""
    checkpoint_records: int | None = None
    """Default: None, off. The same after this number of user records; no batch is longer. May be
    combined with ``checkpoint_seconds``. The KCL has no such option."""
    concurrency: int | None = None
    """Default: None, off: ``process_records`` gets batches. A number gives ``process_record`` one
    record a call, and runs this many calls of each shard at the same time, in threads or, if it is
    ``async def``, as tasks; records of one partition key one after the other, in order. Checkpoints
    are automatic (once a second, unless ``checkpoint_seconds`` or ``checkpoint_records`` is given),
    and cover the unbroken run of finished records. The KCL has no such option."""
    parents_first: bool = True
    """Default: True. The children of a shard begin after all of its records are checkpointed. False
    begins with them at once, while the shard is still read: for applications that need no order
    between a shard's records and its children's. Children are found at the start of a worker, at
    each audit (``audit_interval``), and at the end of the shard. All workers of an application must
    have the same value. The KCL has no such option (gokini declares ``IgnoreShardOrdering``)."""
    parent_poll_interval: float = 10.0
    """Default: 10 s. The wait between two checks of a parent shard that is not finished (KCL
    ``parentShardPollIntervalMillis``). A parent that this worker finishes is noticed at once."""
    task_backoff: float = 0.5
    """Default: 0.5 s. The first wait after a failed task (KCL ``taskBackoffTimeMillis``); doubled
    for each consecutive failure, up to 30 s."""
    audit_interval: float = 120.0
    """Default: 120 s. The time between two checks for hash ranges without a lease (KCL
    ``leasesRecoveryAuditorExecutionFrequencyMillis``)."""
    audit_confidence: int = 3
    """Default: 3. The number of consecutive checks that must find the same hole before it is filled
    (KCL ``leasesRecoveryAuditorInconsistencyConfidenceThreshold``)."""
    cleanup_interval: float = 60.0
    """Default: 60 s. The time between two checks for leases to delete (KCL
    ``leaseCleanupIntervalMillis``)."""
    cleanup_leases: bool = True
    """Default: True. Delete the leases of finished shards once their children are being read (KCL
    ``cleanupLeasesUponShardCompletion``)."""
    shutdown_timeout: float = 30.0
    """Default: 30 s. The time in which record processors may finish once a shutdown is requested,
    by a signal, a record processor or a method, or once the worker has failed.
    ``Worker.shutdown(timeout)`` overrides it."""
    table: LeaseTableOptions = field(default_factory=LeaseTableOptions)
    """The properties of a lease table that is created."""
    metrics: tuple[MetricsExporter, ...] = ()
    """Default: none. The systems that get this worker's metrics, such as
    ``(PrometheusMetrics(), CloudWatchMetrics())``. A system that fails, hangs or refuses never
    slows processing. The KCL's default is CloudWatch, which bills each metric."""
    http: str | None = None
    """Default: None, off. The address at which the worker serves ``/livez``, ``/readyz``,
    ``/status`` and ``/metrics`` by HTTP, such as "127.0.0.1:9400"; ":9400" is the same, and
    "0.0.0.0:9400" opens it to all networks of the machine. A fleet has it on the driver, for all
    workers. The KCL has no such option."""
    unhealthy_after_limit: bool = False
    """Default: False. True makes ``/livez`` false while a call of ``process_records`` takes longer
    than ``processing_time_limit``."""
    on_event: Callable[[Event], object] | None = None
    """Default: None. A function that gets each event in the life of the worker, its shards and its
    leases, as a value, such as `LeaseTaken`. It is called in a thread of its own, so it may be slow
    and may raise: processing goes on. While 1,000 events wait for it, further ones are dropped."""

    def __post_init__(self) -> None:
        check_all(self._checks())

    def _checks(self) -> Iterator[Check]:
        yield from type_checks(self)
        for name in _WAITS:
            yield (name,), partial(_check_wait, name, getattr(self, name))
        yield from at_least(
            self, 0.1, "failover_time", "audit_interval", "cleanup_interval", "standstill_warning"
        )
        yield from at_least(
            self, 0, "handoff_timeout", "idle_time", "task_backoff", "parent_poll_interval"
        )
        yield from at_least(
            self, 1, "max_leases", "max_leases_to_steal", "max_records", "audit_confidence"
        )
        yield from at_least(self, 1, "max_pages_ahead", "max_bytes_ahead", "max_records_ahead")
        yield ("max_held_bytes",), self._check_held
        yield ("max_records",), self._check_max_records
        for name, wanted in (("fan_out", FanOutOptions), ("table", LeaseTableOptions)):
            yield (name,), partial(_check_class, name, getattr(self, name), wanted)
        yield ("retrieval",), partial(self._check_choice, "retrieval", "polling", "efo")
        yield ("balance",), partial(self._check_choice, "balance", "count", "load", "throughput")
        yield ("fan_out", "retrieval"), self._check_fan_out
        for name in ("shard_calls_per_second", "shard_bytes_per_second"):
            yield (name,), partial(_check_rate, name, getattr(self, name))
        pace = "idle_time", "shard_calls_per_second", "shard_bytes_per_second"
        yield (*pace, "retrieval", "fan_out"), self._check_pace
        yield from at_least(
            self, 0, "skip_older_than", "processing_time_limit", "checkpoint_seconds"
        )
        yield from at_least(self, 1, "checkpoint_records", "concurrency")
        for name in ("give_up_after_limit", "unhealthy_after_limit"):
            yield (name,), partial(self._check_limited, name)
        yield ("http",), self._check_http
        yield ("metrics",), self._check_metrics
        yield ("on_event",), partial(require_listener, self.on_event)
        yield from at_least(self, 0, "shutdown_timeout")

    def with_checkpoints(self) -> WorkerOptions:
        """Return these options with automatic checkpoints, if none were asked for."""
        if self.checkpoint_seconds is not None or self.checkpoint_records is not None:
            return self
        return replace(self, checkpoint_seconds=1.0)

    def _check_choice(self, name: str, *choices: str) -> None:
        if (given := getattr(self, name)) not in choices:
            *others, last = map(repr, choices)
            permitted = f"{', '.join(others)} or {last}"
            raise OptionError(f"{name} is {given!r}; it must be {permitted}.")

    def _check_fan_out(self) -> None:
        if self.retrieval != "efo" and self.fan_out != DEFAULT_FAN_OUT:
            raise OptionError("fan_out works only with retrieval='efo'. Set both.")

    def _check_limited(self, name: str) -> None:
        if getattr(self, name) and self.processing_time_limit is None:
            raise OptionError(f"{name} needs a processing_time_limit.")

    def _check_http(self) -> None:
        if self.http is not None:
            parse_address("http", self.http)

    def _check_metrics(self) -> None:
        is_exporters = isinstance(self.metrics, tuple) and all(
            callable(getattr(one, "open", None)) for one in self.metrics
        )
        if not is_exporters:
            raise OptionError(
                f"metrics is {shown_value(self.metrics)}; it must be a tuple of exporters, such as "
                "(PrometheusMetrics(),)."
            )

    def _check_held(self) -> None:
        if self.max_held_bytes < _MIB:
            raise OptionError(
                f"max_held_bytes is {self.max_held_bytes}; it must be at least {_MIB:,} (1 MiB). "
                "It is for all shards together: 4 MiB for each of them is a good start."
            )

    def _check_max_records(self) -> None:
        if self.max_records > MAX_RECORDS_PER_CALL:
            raise OptionError(
                f"max_records is {self.max_records}; GetRecords returns "
                f"{MAX_RECORDS_PER_CALL} records at most."
            )

    def _check_pace(self) -> None:
        idle, spacing = self.idle_time, self.pace.spacing
        polls = self.retrieval == "polling" or self.fan_out.fall_back_to_polling
        # A user who lowers only the pace, and keeps the default idle time, means exactly that.
        is_meant = idle in {0, DEFAULT_IDLE_TIME} or idle >= 0.999 * spacing
        if polls and not is_meant:
            raise OptionError(
                f"idle_time is {idle:g} s, but shard_calls_per_second is {1 / spacing:g}, which "
                f"keeps two calls on a shard {spacing:g} s apart. Make idle_time {spacing:g} or "
                "more, or 0 for as many calls as shard_calls_per_second permits; or make "
                f"shard_calls_per_second {1 / idle:g}. Kinesis takes 5 calls a second on a shard, "
                "from all of its readers together; only a local Kinesis without limits takes more."
            )

    @property
    def pace(self) -> Pace:
        """The limits of polling one shard."""
        calls, size = self.shard_calls_per_second, self.shard_bytes_per_second
        return Pace(
            0.0 if calls == UNLIMITED else float(calls), 0.0 if size == UNLIMITED else float(size)
        )

    @property
    def ahead(self) -> AheadLimits:
        """The limits of fetching ahead of one shard's record processor."""
        return AheadLimits(self.max_pages_ahead, self.max_bytes_ahead, self.max_records_ahead)

    @property
    def shard_sync(self) -> ShardSyncSettings:
        """The settings of shard sync, audit and lease cleanup."""
        return ShardSyncSettings(
            self.audit_interval,
            self.audit_confidence,
            self.cleanup_interval,
            self.cleanup_leases,
            self.parents_first,
        )

    @property
    def renew_interval(self) -> float:
        """The time between two renewals: three fit into the failover time.

        As in the KCL: a third of it, less an epsilon.
        """
        return self.failover_time / 3 - min(0.025, self.failover_time / 100)

    @property
    def taker_interval(self) -> float:
        """The time between two reads of the lease table while leases are to move: half a renewal.

        `sparkinesis.lease.scan_schedule.scan_pause` makes it longer at other times. The KCL
        reads once every two failover times, so that failover after a crash takes up to three.
        """
        return self.renew_interval / 2


def _check_class(name: str, value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        raise OptionError(f"{name} must be {wanted.__name__}(...).")


def _check_rate(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and SLOWEST <= value <= FASTEST) and value != UNLIMITED:
        raise OptionError(
            f"{name} is {shown_value(value)}; it must be a number from {SLOWEST} to "
            f"{FASTEST:,}, or {UNLIMITED!r} for a local Kinesis without limits."
        )


DEFAULT_OPTIONS = WorkerOptions()
