"""The settings of a worker. The defaults are the KCL's, where it has one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from sparkinesis.errors import OptionError
from sparkinesis.lease.shard_syncer import ShardSyncSettings
from sparkinesis.public import public
from sparkinesis.stream.address import CONSUMER_NAME, shown
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL

_CONSUMER_ARN = re.compile(
    r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}"
    r":stream/(?P<stream>[a-zA-Z0-9_.-]{1,128})/consumer/[a-zA-Z0-9_.-]{1,128}:[0-9]+"
)

LONGEST = 3_652 * 86_400.0
"""Seconds, ten years: what no wait comes near, and every clock can add."""

Bytes: TypeAlias = int

_MOST = {"int": 2**31 - 1, "Bytes": 2**63 - 1, "float": LONGEST}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((int,), f"a whole number below {2**31:,}"),
    "Bytes": ((int,), "a whole number of bytes"),
    "float": ((int, float), f"a number of seconds, {LONGEST:.0f} at most"),
}


def check_types(options: Any) -> None:
    """Raise `OptionError` for a value that is not of its field's type, or not a time to wait."""
    for each in fields(options):
        kind, _, none = str(each.type).partition(" | ")
        value = getattr(options, each.name)
        if kind not in _KINDS or (value is None and none == "None"):
            continue
        types, wanted = _KINDS[kind]
        is_of_type = isinstance(value, types) and isinstance(value, bool) == (kind == "bool")
        is_sane = kind == "bool" or (is_of_type and abs(value) <= _MOST[kind])
        if not is_of_type or not is_sane:
            raise OptionError(f"{each.name} is {_shown(value)}; it must be {wanted}.")


def _shown(value: object) -> str:
    try:
        return shown(value) if isinstance(value, str) else repr(value)[:200]
    except ValueError:  # a number of thousands of digits
        return f"a {type(value).__name__} too large to show"


BillingMode: TypeAlias = Literal["PAY_PER_REQUEST", "PROVISIONED"]


@public
@dataclass(frozen=True, slots=True)
class LeaseTableOptions:
    """How to create the lease table where there is none. An existing table is left as it is."""

    billing_mode: BillingMode = "PAY_PER_REQUEST"
    read_capacity: int = 10
    """Units a second; of PROVISIONED only."""
    write_capacity: int = 10
    point_in_time_recovery: bool = False
    """Switched on at each start, for an existing table too, as the KCL does; never off."""
    deletion_protection: bool = False
    tags: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.billing_mode not in ("PAY_PER_REQUEST", "PROVISIONED"):
            raise OptionError(
                f"billing_mode is {self.billing_mode!r}; it must be PAY_PER_REQUEST or PROVISIONED."
            )
        check_types(self)
        for name in ("read_capacity", "write_capacity"):
            _at_least(self, name, 1)
        is_pairs = isinstance(self.tags, tuple) and all(
            isinstance(tag, tuple) and len(tag) == 2 and all(isinstance(text, str) for text in tag)
            for tag in self.tags
        )
        if not is_pairs:
            raise OptionError("tags must be a tuple of pairs of texts.")


@public
@dataclass(frozen=True, slots=True)
class FanOutOptions:
    """Enhanced fan-out: the registered consumer that an application's workers share."""

    consumer_name: str | None = None
    """The consumer to use, registered where there is none of that name (KCL
    ``fanoutConfig.consumerName``); None: the application's name."""
    consumer_arn: str | None = None
    """A consumer that is there; nothing is registered or described then."""
    fall_back_to_polling: bool = False
    """Read by GetRecords when registering is refused: the stream has as many consumers as it may,
    or the credentials may not register one. A warning says why."""
    deregister: bool = False
    """Deregister the consumer when the last worker shuts down gracefully (the KCL never does): it
    costs by the hour, used or not."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.consumer_name is not None:
            check_consumer_name("consumer_name", self.consumer_name)
        arn = self.consumer_arn
        if arn is None:
            return
        if not isinstance(arn, str) or not _CONSUMER_ARN.fullmatch(arn):
            raise OptionError(
                f"consumer_arn is {arn!r}; it must be the ARN of a consumer, such as "
                "arn:aws:kinesis:eu-west-1:123456789012:stream/flights/consumer/app:1700000000."
            )
        for name in ("consumer_name", "fall_back_to_polling", "deregister"):
            if getattr(self, name):
                raise OptionError(
                    f"{name} concerns a consumer that is registered here, and consumer_arn is of "
                    "one that is there: give one of both."
                )

    @property
    def stream_of_arn(self) -> str | None:
        """The name of the stream that ``consumer_arn`` is of."""
        found = _CONSUMER_ARN.fullmatch(self.consumer_arn or "")
        return found["stream"] if found else None


def check_consumer_name(option: str, name: str) -> None:
    """Raise `OptionError` unless ``name`` may be a consumer's (API reference, ConsumerName)."""
    if not isinstance(name, str) or not CONSUMER_NAME.fullmatch(name):
        raise OptionError(
            f"{option} is {name!r}; the name of a consumer has 1 to 128 letters, digits, '_', '.' "
            "and '-'."
        )


DEFAULT_FAN_OUT = FanOutOptions()

DEFAULT_HELD_BYTES = 512 * 1_048_576
"""With it, a worker of 200 shards with slow processors stays within a container of 2 GiB."""

_MIB = 1_048_576


@dataclass(frozen=True, slots=True)
class AheadLimits:
    """The most that waits for one shard's record processor."""

    pages: int
    bytes: int
    records: int


@public
@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Durations are in seconds. Raises `OptionError` for a value that cannot be used."""

    failover_time: float = 10.0
    """A lease that was not renewed for this long is taken by another worker (KCL
    ``failoverTimeMillis``). All workers of an application must agree on it."""
    max_leases: int = 2**31 - 1
    """The most shards that this worker reads (KCL ``maxLeasesForWorker``)."""
    max_leases_to_steal: int = 2**31 - 1
    """The most leases to steal at one time. The KCL's default of 1 balances slowly."""
    handoff_timeout: float = 30.0
    """How long the owner of a stolen lease may take to let go (KCL
    ``gracefulLeaseHandoffTimeoutMillis``)."""
    retrieval: Literal["polling", "efo"] = "polling"
    """How records are fetched: by GetRecords, or pushed by the service to a registered consumer
    (enhanced fan-out), which has 2 MiB a second of each shard to itself. The KCL's default is the
    second, which is billed."""
    fan_out: FanOutOptions = DEFAULT_FAN_OUT
    """Of ``retrieval="efo"``."""
    max_records: int = MAX_RECORDS_PER_CALL
    """The most records to ask for in one GetRecords call, 1 to 10,000. With enhanced fan-out the
    service alone decides how many come at once."""
    idle_time: float = 1.0
    """The wait between two reads of a shard that had nothing more to give; none with enhanced
    fan-out."""
    max_held_bytes: Bytes = DEFAULT_HELD_BYTES
    """The most memory for records that wait for record processors or are with them: of all shards
    of all workers in this process that give the same number. What is unpacked counts as what it
    takes then, with a Python object for each user record. A shard that has nothing is always given
    a little, so that no shard waits for another's processor. The KCL has no such limit."""
    max_pages_ahead: int = 4
    """How many answers or events may wait for a shard's record processor before no more is fetched
    (KCL ``maxPendingProcessRecordsInput``)."""
    max_bytes_ahead: Bytes = 8 * _MIB
    """The same in bytes of data (KCL ``maxByteSize``; ``maxCacheByteSize`` in 1.x)."""
    max_records_ahead: int = 30_000
    """The same in records, as the stream stores them (KCL ``maxRecordsCount``)."""
    call_even_for_empty_batches: bool = False
    """Call ``process_records`` without records too, so that it can act on time."""
    deaggregate: bool = True
    """Unpack the user records of KPL aggregated records."""
    hash_range_filter: bool = False
    """Drop user records of KPL aggregated records that lie outside of the shard's hash range: for
    KPL producers that send those again after a reshard. The KCL always does so, and drops the
    whole aggregated record. Every other record is delivered, whatever its key: a record that is
    not aggregated, one that is damaged, any record with ``deaggregate=False``, and any on a stream
    that distributes records itself. ``worker.status()`` counts what was dropped."""
    skip_older_than: float | None = None
    """Never deliver records that arrived longer ago than this. 0: those from before the worker
    started. None: deliver everything."""
    processing_time_limit: float | None = None
    """Report a ``process_records`` that takes longer."""
    give_up_after_limit: bool = False
    """Also give the shard up then: the lease is released, and another worker goes on from the
    last checkpoint."""
    parent_poll_interval: float = 10.0
    """The wait between two looks at a parent that is not finished (KCL
    ``parentShardPollIntervalMillis``); a parent finished on this worker is noticed at once."""
    task_backoff: float = 0.5
    """The wait after a failed task (KCL ``taskBackoffTimeMillis``)."""
    audit_interval: float = 120.0
    """Time between two looks for hash ranges without a lease (KCL
    ``leasesRecoveryAuditorExecutionFrequencyMillis``)."""
    audit_confidence: int = 3
    """How often in a row the same hole must be seen (KCL
    ``leasesRecoveryAuditorInconsistencyConfidenceThreshold``)."""
    cleanup_interval: float = 60.0
    """Time between two looks for leases to delete (KCL ``leaseCleanupIntervalMillis``)."""
    cleanup_leases: bool = True
    """Delete leases of finished shards once their children are being read (KCL
    ``cleanupLeasesUponShardCompletion``)."""
    shutdown_timeout: float = 30.0
    """How long SIGTERM and SIGINT let processors finish; pass another to ``shutdown``."""
    table: LeaseTableOptions = field(default_factory=LeaseTableOptions)

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("failover_time", "audit_interval", "cleanup_interval"):
            _at_least(self, name, 0.1)
        for name in ("handoff_timeout", "idle_time", "task_backoff", "parent_poll_interval"):
            _at_least(self, name, 0)
        for name in ("max_leases", "max_leases_to_steal", "max_records", "audit_confidence"):
            _at_least(self, name, 1)
        self._check_ahead()
        if self.max_records > MAX_RECORDS_PER_CALL:
            raise OptionError(
                f"max_records is {self.max_records}; GetRecords returns "
                f"{MAX_RECORDS_PER_CALL} records at most."
            )
        for name, wanted in (("fan_out", FanOutOptions), ("table", LeaseTableOptions)):
            if not isinstance(getattr(self, name), wanted):
                raise OptionError(f"{name} must be {wanted.__name__}(...).")
        if self.retrieval not in ("polling", "efo"):
            raise OptionError(f"retrieval is {self.retrieval!r}; it must be 'polling' or 'efo'.")
        if self.retrieval != "efo" and self.fan_out != DEFAULT_FAN_OUT:
            raise OptionError("fan_out is given, and is of retrieval='efo' only: give that too.")
        if self.skip_older_than is not None:
            _at_least(self, "skip_older_than", 0)
        if self.processing_time_limit is not None:
            _at_least(self, "processing_time_limit", 0)
        if self.give_up_after_limit and self.processing_time_limit is None:
            raise OptionError("give_up_after_limit needs a processing_time_limit.")
        _at_least(self, "shutdown_timeout", 0)

    def _check_ahead(self) -> None:
        for name in ("max_pages_ahead", "max_bytes_ahead", "max_records_ahead"):
            _at_least(self, name, 1)
        if self.max_held_bytes < _MIB:
            raise OptionError(
                f"max_held_bytes is {self.max_held_bytes}; it must be at least {_MIB:,} (1 MiB). "
                "It is for all shards together: 4 MiB for each of them is a good start."
            )

    @property
    def ahead(self) -> AheadLimits:
        """What concerns fetching ahead of one shard's record processor."""
        return AheadLimits(self.max_pages_ahead, self.max_bytes_ahead, self.max_records_ahead)

    @property
    def shard_sync(self) -> ShardSyncSettings:
        """What concerns the leases of all workers."""
        return ShardSyncSettings(
            self.audit_interval, self.audit_confidence, self.cleanup_interval, self.cleanup_leases
        )

    @property
    def renew_interval(self) -> float:
        """Three renewals fit into the failover time (KCL: a third of it, less an epsilon)."""
        return self.failover_time / 3 - min(0.025, self.failover_time / 100)

    @property
    def taker_interval(self) -> float:
        """Time between two looks at the lease table.

        The KCL looks every second failover time, which makes a crash cost up to three of them. Half
        a renew interval lets a released lease be taken within one.
        """
        return self.renew_interval / 2


def _at_least(options: object, name: str, least: float) -> None:
    value = getattr(options, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
        raise OptionError(f"{name} is {value!r}; it must be a number of at least {least}.")


DEFAULT_OPTIONS = WorkerOptions()
