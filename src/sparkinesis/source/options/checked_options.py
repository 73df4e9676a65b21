"""The options of one query, checked: for all that is wrong at once, then as a value for each use.

`check_options` also checks options that depend on each other, and raises one error for all that is
wrong. `stream_read_options`, `batch_read_options` and `write_options` return what the rest of the
source works with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.public import __version__
from sparkinesis.source.offsets import ANY_SHARD, Offset, Positions
from sparkinesis.source.options.option_table import OPTIONS, Options, Use
from sparkinesis.source.options.positions import boundary_by_stream
from sparkinesis.stream.address import StreamAddress, is_loopback
from sparkinesis.stream.position import LATEST, FromApplication, Position
from sparkinesis.stream.reading.budget import Pace

_STREAM_OPTIONS = ("streamName", "streamARN", "region", "endpoint")
"""The options by which the streams are found."""


def check_options(options: Options, *uses: Use, more: Iterable[Check] = ()) -> None:
    """Raise one `OptionError` for all that is wrong with options, for one use or any of several.

    more: checks of the use that come last.
    """
    together = [*_checks_together(options), *more]
    if uses == (Use.WRITE,):
        together.append((_STREAM_OPTIONS, partial(_check_one_stream, options)))
    meant = options.meant(uses)
    rest = (check for check in together if meant.isdisjoint(check[0]))
    check_all([*options.checks(uses), *rest])


def check_options_of_some_use(options: Options) -> None:
    """Raise one `OptionError` if options are wrong in every use, as the use is not known yet.

    The error also says which options do not apply to the use that most of the options are for.
    """
    try:
        check_options(options, *Use)
    except OptionError:
        given = {use: sum(use in OPTIONS[name].uses for name in options.given) for use in Use}
        check_options(options, *(use for use in Use if given[use] == max(given.values())))
        raise


def _checks_together(options: Options) -> Iterator[Check]:
    def check(function: Callable[[Options], object], *names: str) -> Check:
        return names, partial(function, options)

    yield check(Options.addresses, *_STREAM_OPTIONS)
    for name in ("roleExternalId", "roleSessionName", "stsEndpoint"):
        yield (name, "roleArn"), partial(_check_role, options, name)
    yield check(_check_min_rows, "minRowsPerTrigger", "maxRecordsPerTrigger")
    yield check(_check_trigger_delay, "maxTriggerDelay", "minRowsPerTrigger")
    yield check(_check_dynamodb_endpoint, "dynamodbEndpoint", "initialPosition")
    yield check(_check_consumer_name, "consumerName", "consumerMode")
    for name in ("consumerName", "requireConsumerDeregistration"):
        yield (name, "consumerMode"), partial(_check_is_for_efo, options, name)
    yield check(_check_aggregation, "aggregationMaxSize", "aggregation")


def _check_role(options: Options, name: str) -> None:
    if name in options.given and "roleArn" not in options.given:
        raise OptionError(
            f"The option {name} has no effect without a role to assume: set the option roleArn too."
        )


def _check_min_rows(options: Options) -> None:
    least: int = options["minRowsPerTrigger"]
    if least > options["maxRecordsPerTrigger"]:
        raise OptionError(
            f"The option minRowsPerTrigger is {least}, which is more than "
            f"maxRecordsPerTrigger ({options['maxRecordsPerTrigger']:.0f}) "
            "allows. Lower the one or raise the other."
        )


def _check_trigger_delay(options: Options) -> None:
    if "maxTriggerDelay" in options.given and not options["minRowsPerTrigger"]:
        raise OptionError(
            "The option maxTriggerDelay has no effect without the option "
            "minRowsPerTrigger, whose rows it waits for."
        )


def _check_dynamodb_endpoint(options: Options) -> None:
    is_given = "dynamodbEndpoint" in options.given
    if is_given and not isinstance(options["initialPosition"], FromApplication):
        raise OptionError(
            "The option dynamodbEndpoint is the URL of the lease table of a "
            "KCL application, and applies to initialPosition=application:NAME only. Leave it out."
        )


def _check_consumer_name(options: Options) -> None:
    if options["consumerMode"] == "efo" and options["consumerName"] is None:
        raise OptionError(
            "The option consumerMode=efo needs the option consumerName, the name by which the "
            "query is registered with its streams. Give each query a name of its own, and keep "
            "the name over restarts: two queries of one name interrupt each other's "
            "subscriptions."
        )


def _check_is_for_efo(options: Options, name: str) -> None:
    if name in options.given and options["consumerMode"] != "efo":
        raise OptionError(
            f"The option {name} applies to enhanced fan-out only. Leave it "
            "out, or set the option consumerMode to efo."
        )


def _check_aggregation(options: Options) -> None:
    if "aggregationMaxSize" in options.given and not options["aggregation"]:
        raise OptionError("The option aggregationMaxSize needs the option aggregation=true.")


def _check_one_stream(options: Options) -> None:
    addresses = options.addresses()
    if len(addresses) > 1:
        given = "streamName" if "streamName" in options.given else "streamARN"
        names = ", ".join(address.name for address in addresses)
        raise OptionError(
            f"The option {given} names {len(addresses)} streams ({names}), but a query writes to "
            "one stream. Write once for each stream."
        )


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
    """The checked options that tasks need, of any read; those of the driver alone are below.

    Pickled to executors, so they never hold credentials.
    """

    addresses: tuple[StreamAddress, ...]
    """The streams, at least one; all are in one region, and their names differ."""
    columns: tuple[str, ...]
    """The columns of the rows, in order. No other column is made."""
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
    """The fewest rows of a batch, approximately."""
    max_trigger_delay: float = 900.0
    """Seconds after the last batch; then a batch may have fewer rows."""
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
        columns=options["columns"],
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
class PushedFilters:
    """The filters of a batch read that reduce the records to read; None: no filter."""

    streams: frozenset[str] | None = None
    shards: frozenset[str] | None = None
    start_ms: int | None = None
    """Read only records that arrived at this epoch millisecond or later."""
    before_ms: int | None = None
    """Read only up to the first record that arrived at this epoch millisecond or later."""

    def has_stream(self, stream: str) -> bool:
        return self.streams is None or stream in self.streams

    def has_shard(self, shard_id: str) -> bool:
        return self.shards is None or shard_id in self.shards


@dataclass(frozen=True, slots=True)
class BatchReadOptions:
    """The checked options of a batch read. A stream not in ``start`` or ``end`` is unbounded."""

    reading: ReadOptions
    start: Offset
    end: Offset
    filter_pushdown: bool
    """Use the query's filters to read less. Off by default: Spark 4.3.0 keeps the filtered plan on
    the loaded DataFrame, and uses it for other queries on that DataFrame as well."""
    filters: PushedFilters = PushedFilters()
    """Those that Spark has pushed so far."""


def batch_read_options(options: Options) -> BatchReadOptions:
    """Check and return the options of ``read``. Raises `OptionError`, which names the option."""
    bounds: dict[str, Offset] = {}

    def bound(name: str) -> None:
        names = [address.name for address in options.addresses()]
        bounds[name] = boundary_by_stream(name, options[name], names)

    start, end = "startingPosition", "endingPosition"
    checks = [((name, *_STREAM_OPTIONS), partial(bound, name)) for name in (start, end)]
    check_options(options, Use.READ, more=checks)
    return BatchReadOptions(
        _read_options(options), bounds[start], bounds[end], options["filterPushdown"]
    )


AGGREGATE_KEY_SIZE = 1
"""Bytes of `sparkinesis.stream.put_entry.AGGREGATE_KEY`."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of writing. Pickled to executors, so they never hold credentials."""

    address: StreamAddress
    ordered: bool
    aggregation: bool
    aggregation_max_size: int
    """The largest size of an aggregate, in bytes."""
    max_record_size: int
    """The largest size of a record in bytes: its data and its partition key."""
    version: str = __version__
    """The driver's version of sparkinesis."""

    @property
    def aggregate_size(self) -> int | None:
        """The largest size of an aggregate's data in bytes; None without aggregation.

        With its partition key the aggregate still fits ``max_record_size``.
        """
        if not self.aggregation:
            return None
        return min(self.aggregation_max_size, self.max_record_size - AGGREGATE_KEY_SIZE)


def write_options(options: Options) -> WriteOptions:
    """Check and return the options of ``write`` and ``writeStream``. Raises `OptionError`."""
    check_options(options, Use.WRITE)
    return WriteOptions(
        address=options.addresses()[0],
        ordered=options["ordered"],
        aggregation=options["aggregation"],
        aggregation_max_size=options["aggregationMaxSize"],
        max_record_size=options["maxRecordSize"],
    )
