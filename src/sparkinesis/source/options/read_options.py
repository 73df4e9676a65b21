"""The options of every read, those of ``readStream``, and those of a batch read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from sparkinesis.public import __version__
from sparkinesis.source.offsets import ANY_SHARD, Offset, Positions
from sparkinesis.source.options.batch_boundary import boundary_by_stream
from sparkinesis.source.options.option_checks import STREAM_OPTIONS, check_options
from sparkinesis.source.options.option_table import Options, Use
from sparkinesis.stream.address import StreamAddress, is_loopback
from sparkinesis.stream.position import LATEST, Position
from sparkinesis.stream.reading.budget import Pace


@dataclass(frozen=True, slots=True)
class Allowance:
    """A limit in rows, and in bytes of data as Kinesis stores it; infinity for no limit."""

    rows: float = math.inf
    bytes: float = math.inf

    @property
    def is_limited(self) -> bool:
        return self.rows < math.inf or self.bytes < math.inf


NO_LIMIT = Allowance()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of reading. Pickled to executors, so they never hold credentials."""

    addresses: tuple[StreamAddress, ...]
    """The streams, at least one; all are in one region, and their names differ."""
    deaggregate: bool
    """Unpack KPL aggregates into user records (default), or return records as stored."""
    fail_on_data_loss: bool
    max_records_per_fetch: int
    """``Limit`` of the readers' GetRecords calls, 1 to 10,000."""
    pace: Pace
    version: str = __version__
    """The driver's version of sparkinesis."""

    @property
    def streams(self) -> dict[str, StreamAddress]:
        """The streams by name."""
        return {address.name: address for address in self.addresses}


@dataclass(frozen=True, slots=True)
class FanOutRead:
    """Enhanced fan-out: the query reads as a registered consumer of each stream."""

    consumer_name: str
    deregister: bool
    """True if the consumer is deregistered when the query stops."""


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """The checked options of a streaming query, by which a batch read plans its open ends, too."""

    reading: ReadOptions
    min_fetch_period: float | None
    """Seconds between two polls of the planner for new records, at least; None: it adapts."""
    initial_position: Position = LATEST
    """The start of a query without a checkpoint: LATEST, TRIM_HORIZON, an instant, or the
    checkpoints of a KCL application."""
    allowance: Allowance = NO_LIMIT
    """The limits of one batch."""
    min_rows: int = 0
    """About the fewest rows of a batch."""
    max_trigger_delay: float = 900.0
    """Seconds after the last batch from which on a batch may have fewer rows."""
    max_shard_drift: float = 0.0
    """Seconds by which shards may be apart at the end of a batch; infinity for any time."""
    skip_older_than: float | None = None
    """Seconds: a query that starts or resumes skips older records; None: it delivers all."""
    dynamodb_endpoint: str | None = None
    """URL of the DynamoDB that holds the KCL application's leases; None: the region's own."""
    drops_removed_streams: bool = False
    """Go on without streams of the checkpoint that ``reading`` no longer names, or fail."""
    fan_out: FanOutRead | None = None
    """The consumer that reads with enhanced fan-out; None: batches are read by GetRecords."""

    @property
    def initial_positions(self) -> Positions:
        """The initial positions of every stream of a query without a checkpoint."""
        return {ANY_SHARD: self.initial_position}


def _read_options(options: Options) -> ReadOptions:
    """Return the options that every read takes, which are checked."""
    return ReadOptions(
        addresses=options.addresses(),
        deaggregate=options["deaggregate"],
        fail_on_data_loss=options["failOnDataLoss"],
        max_records_per_fetch=options["maxRecordsPerFetch"],
        # The limit of five calls a second is split in three: for the planner, for the tasks of one
        # machine, and for a task on another machine, which does not know of earlier calls.
        pace=Pace(options["shardCallsPerSecond"] / 3, options["shardBytesPerSecond"]),
    )


def stream_read_options(options: Options) -> StreamReadOptions:
    """Check and return the options of ``readStream``. Raises `OptionError`, which names it."""
    check_options(options, Use.READ_STREAM)
    return StreamReadOptions(
        reading=_read_options(options),
        initial_position=options["initialPosition"],
        min_fetch_period=options["minFetchPeriod"],
        skip_older_than=options["skipOlderThan"],
        allowance=Allowance(options["maxRecordsPerTrigger"], options["maxBytesPerTrigger"]),
        min_rows=options["minRowsPerTrigger"],
        max_trigger_delay=options["maxTriggerDelay"],
        max_shard_drift=options["maxShardDrift"],
        dynamodb_endpoint=_dynamodb_endpoint(options),
        drops_removed_streams=options["removedStreams"] == "drop",
        fan_out=_fan_out(options),
    )


def _dynamodb_endpoint(options: Options) -> str | None:
    given: str | None = options["dynamodbEndpoint"]
    if given is None and is_loopback(options["endpoint"]):
        given = options["endpoint"]  # the local server serves DynamoDB, too
    return given


def _fan_out(options: Options) -> FanOutRead | None:
    if options["consumerMode"] != "efo":
        return None
    return FanOutRead(options["consumerName"], options["requireConsumerDeregistration"])


@dataclass(frozen=True, slots=True)
class BatchReadOptions:
    """The checked options of a batch read. A stream not in ``start`` or ``end`` is unbounded."""

    reading: ReadOptions
    start: Offset
    end: Offset
    filter_pushdown: bool
    """Use the query's filters to read less. Off by default: Spark 4.3.0 keeps the filtered plan on
    the loaded DataFrame, and uses it for other queries on that DataFrame as well."""


def batch_read_options(options: Options) -> BatchReadOptions:
    """Check and return the options of ``read``. Raises `OptionError`, which names the option."""
    bounds: dict[str, Offset] = {}

    def bound(name: str) -> None:
        names = [address.name for address in options.addresses()]
        bounds[name] = boundary_by_stream(name, options[name], names)

    start, end = "startingPosition", "endingPosition"
    checks = [((name, *STREAM_OPTIONS), partial(bound, name)) for name in (start, end)]
    check_options(options, Use.READ, more=checks)
    return BatchReadOptions(
        _read_options(options), bounds[start], bounds[end], options["filterPushdown"]
    )
