"""The options of ``format("kinesis")``: read and checked before anything is called.

Names are those of Databricks' Kinesis source where it has one; like all Spark options they are not
case-sensitive. An option that belongs to another use of the source is refused, never ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from sparkinesis.errors import OptionError
from sparkinesis.source.consumer_mode import FanOut, fan_out
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.options.admission import Allowance
from sparkinesis.source.options.boundary import boundary
from sparkinesis.source.options.values import (
    age,
    boolean,
    duration,
    integer,
    known_regions,
    limit,
    nearest_region,
    rate,
    read_consumer_mode,
    read_consumer_name,
    read_endpoint,
    read_external_id,
    read_initial_position,
    read_region,
    read_role_arn,
    read_session_name,
    read_text,
    size,
)
from sparkinesis.stream.address import (
    STREAM_ARN,
    STREAM_NAME,
    StreamAddress,
    is_loopback,
    shown,
)
from sparkinesis.stream.credentials import CredentialSource
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, FromApplication, Position
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL, Pace


class Use(Enum):
    """What a query does with the source; an option is for one or more of them."""

    READ_STREAM = "readStream"
    READ = "read"
    WRITE = "write and writeStream"


_READING = frozenset({Use.READ_STREAM, Use.READ})
_STREAMING = frozenset({Use.READ_STREAM})
_BATCH = frozenset({Use.READ})
_WRITING = frozenset({Use.WRITE})
_ANY_USE = frozenset(Use)


@dataclass(frozen=True, slots=True)
class Option:
    """How an option's text is read (None: not given), and what it is for."""

    read: Callable[[str, str | None], Any]
    uses: frozenset[Use] = _READING


OPTIONS: Mapping[str, Option] = {
    "streamName": Option(read_text, _ANY_USE),
    "streamARN": Option(read_text, _ANY_USE),
    "region": Option(read_region, _ANY_USE),
    "endpoint": Option(read_endpoint, _ANY_USE),
    "profile": Option(read_text, _ANY_USE),
    "roleArn": Option(read_role_arn, _ANY_USE),
    "roleExternalId": Option(read_external_id, _ANY_USE),
    "roleSessionName": Option(read_session_name, _ANY_USE),
    "stsEndpoint": Option(read_endpoint, _ANY_USE),
    "initialPosition": Option(read_initial_position, _STREAMING),
    "dynamodbEndpoint": Option(read_endpoint, _STREAMING),
    "consumerMode": Option(read_consumer_mode, _STREAMING),
    "consumerName": Option(read_consumer_name, _STREAMING),
    "requireConsumerDeregistration": Option(boolean(False), _STREAMING),
    "startingPosition": Option(boundary(TRIM_HORIZON), _BATCH),
    "endingPosition": Option(boundary(LATEST), _BATCH),
    "filterPushdown": Option(boolean(False), _BATCH),
    "deaggregate": Option(boolean(True)),
    "failOnDataLoss": Option(boolean(True)),
    "maxRecordsPerFetch": Option(integer(MAX_RECORDS_PER_CALL, 1, MAX_RECORDS_PER_CALL)),
    "minFetchPeriod": Option(duration(1.0), _STREAMING),
    "skipOlderThan": Option(age, _STREAMING),
    "maxRecordsPerTrigger": Option(limit, _STREAMING),
    "maxBytesPerTrigger": Option(size, _STREAMING),
    "shardCallsPerSecond": Option(rate(5)),
    "shardBytesPerSecond": Option(rate(2_000_000)),
    "ordered": Option(boolean(False), _WRITING),
    "aggregation": Option(boolean(False), _WRITING),
    "aggregationMaxSize": Option(integer(51_200, 64, 1_048_576), _WRITING),
    "maxRecordSize": Option(integer(1_048_576, 1024, 10_485_760), _WRITING),
    # Spark's own, which it hands to the sink of a streaming query.
    "checkpointLocation": Option(read_text, _WRITING),
    "queryName": Option(read_text, _WRITING),
}

_LISTS = {"streamName", "streamARN"}
_MAPS = {"startingPosition", "endingPosition"}
_LONGEST = 4_096
"""Characters of a value that is neither a list nor a JSON map; the longest of an ARN is shorter."""

_CREDENTIALS = re.compile(r"(aws|sts)*(access|secret|secretaccess)key(id)?|(aws|sts)*sessiontoken")


class Options:
    """All options of one query, each read and checked by itself. Raises `OptionError`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in OPTIONS}
        for name in options:
            if _CREDENTIALS.fullmatch(re.sub("[^a-z]", "", name.lower())):
                raise OptionError(
                    f"The option {name} is not taken: credentials in options end up in query plans "
                    "and logs. Give the driver and the executors a role, a profile, or the "
                    "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. The option "
                    "roleArn names a role to assume with those."
                )
            if name.lower() not in known:
                raise OptionError(_unknown(name))
        self.given = {known[name.lower()]: name for name in options}
        """Under its own name, how the user wrote each option that is given."""
        texts = {known[name.lower()]: text for name, text in options.items()}
        for name, text in texts.items():
            is_map = name in _MAPS and text.lstrip().startswith("{")
            if len(text) > _LONGEST and name not in _LISTS and not is_map:
                raise OptionError(
                    f"The option {self.given[name]} has {len(text):,} characters; no value that it "
                    f"takes has more than {_LONGEST:,}."
                )
        self._values = {
            name: option.read(self.given.get(name, name), texts.get(name))
            for name, option in OPTIONS.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def check_use(self, use: Use) -> None:
        """Refuse options that are for something else. Raises `OptionError`."""
        for name, written in self.given.items():
            if use not in OPTIONS[name].uses:
                others = " and ".join(sorted(other.value for other in OPTIONS[name].uses))
                taken = ", ".join(n for n, option in OPTIONS.items() if use in option.uses)
                raise OptionError(
                    f"The option {written} is for {others}, not for {use.value}, which takes: "
                    f"{taken}."
                )

    def addresses(self) -> tuple[StreamAddress, ...]:
        """The streams, in the order given. Raises `OptionError`."""
        credentials = self._credential_source()
        found = _addresses(self["streamName"], self["streamARN"], self["region"], self["endpoint"])
        return tuple(replace(address, credentials=credentials) for address in found)

    def _credential_source(self) -> CredentialSource:
        if self["roleArn"] is None:
            for name in ("roleExternalId", "roleSessionName", "stsEndpoint"):
                if name in self.given:
                    raise OptionError(
                        f"The option {self.given[name]} says how a role is assumed, but no role is "
                        "named: set the option roleArn too."
                    )
        return CredentialSource(
            self["profile"],
            self["roleArn"],
            self["roleExternalId"],
            self["roleSessionName"],
            self["stsEndpoint"],
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How streams are read, checked. Pickled to executors: never any credentials."""

    addresses: tuple[StreamAddress, ...]
    """At least one; names and regions: no two of one name, all in one region."""
    deaggregate: bool
    """Unpack KPL aggregates into user records (default) or hand on the records as stored."""
    fail_on_data_loss: bool
    max_records_per_fetch: int
    """``Limit`` of the readers' GetRecords calls, 1 to 10,000."""
    pace: Pace

    @property
    def streams(self) -> dict[str, StreamAddress]:
        """The streams by name."""
        return {address.name: address for address in self.addresses}


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """What a streaming query asked for, checked."""

    reading: ReadOptions
    initial_position: Position
    """Where a query without a checkpoint begins: LATEST, TRIM_HORIZON, an instant, or where a KCL
    application stands."""
    min_fetch_period: float
    """Seconds at least between two looks of the planner for new records."""
    allowance: Allowance
    """What a batch may read."""
    skip_older_than: float | None
    """Seconds: what is older when the query starts or resumes is not delivered; None: all is."""
    dynamodb_endpoint: str | None = None
    """URL of the DynamoDB that holds the KCL application's leases; None: the region's own."""
    fan_out: FanOut | None = None
    """The consumer that reads with enhanced fan-out; None: batches are read by GetRecords."""

    @property
    def initial_positions(self) -> Positions:
        """Where every stream of a query without a checkpoint begins."""
        return {ANY_SHARD: self.initial_position}


def read_options(options: Options) -> ReadOptions:
    """What every way of reading takes. Raises `OptionError`."""
    return ReadOptions(
        addresses=options.addresses(),
        deaggregate=options["deaggregate"],
        fail_on_data_loss=options["failOnDataLoss"],
        max_records_per_fetch=options["maxRecordsPerFetch"],
        # A third for the planner, a third for the tasks of a machine, and a third for a task whose
        # predecessor on the shard ran on another machine and cannot be counted: five a second hold.
        pace=Pace(options["shardCallsPerSecond"] / 3, options["shardBytesPerSecond"]),
    )


def stream_read_options(options: Options) -> StreamReadOptions:
    """The options of ``readStream``. Raises `OptionError`, which names the option."""
    options.check_use(Use.READ_STREAM)
    return StreamReadOptions(
        reading=read_options(options),
        initial_position=options["initialPosition"],
        min_fetch_period=options["minFetchPeriod"],
        skip_older_than=options["skipOlderThan"],
        allowance=Allowance(options["maxRecordsPerTrigger"], options["maxBytesPerTrigger"]),
        dynamodb_endpoint=_dynamodb_endpoint(options),
        fan_out=fan_out(options),
    )


def _dynamodb_endpoint(options: Options) -> str | None:
    given: str | None = options["dynamodbEndpoint"]
    if given is None:
        # The local server is DynamoDB as well.
        return options["endpoint"] if is_loopback(options["endpoint"]) else None
    if not isinstance(options["initialPosition"], FromApplication):
        raise OptionError(
            f"The option {options.given['dynamodbEndpoint']} says where the lease table of a KCL "
            "application is, and goes with initialPosition=application:NAME only. Leave it out."
        )
    return given


def _unknown(name: str) -> str:
    names = {known.lower(): known for known in OPTIONS}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"Did you mean {names[near[0]]}? " if near else ""
    return f"The kinesis source has no option {name!r}. {hint}It takes: {', '.join(OPTIONS)}."


def _addresses(
    names: str | None, arns: str | None, region: str | None, endpoint: str | None
) -> tuple[StreamAddress, ...]:
    if (names is None) == (arns is None):
        raise OptionError(
            "Say which stream is meant: give either the option streamName or the option streamARN"
            + (", not both." if names is not None else ".")
        )
    if arns is not None:
        found = [_by_arn(arn, region, endpoint) for arn in _listed("streamARN", arns)]
    else:
        assert names is not None
        found = [_by_name(name, region, endpoint) for name in _listed("streamName", names)]
    regions = {address.region for address in found}
    if len(regions) > 1:
        raise OptionError(
            f"The option streamARN names streams in {_and(sorted(map(str, regions)))}; one source "
            "reads one region. Use a source for each region and union them."
        )
    twice = sorted({a.name for a in found if [b.name for b in found].count(a.name) > 1})
    if twice:
        raise OptionError(
            f"The stream {_and(twice)} is named more than once. The column stream, and the offsets "
            "in the checkpoint, tell streams apart by name: use a source for each."
        )
    return tuple(found)


def _and(words: Sequence[str]) -> str:
    return " and ".join(words)


def _listed(option: Literal["streamName", "streamARN"], text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise OptionError(
            f"The option {option} is {shown(text)}, which has an empty place in its list."
        )
    return parts


def _by_arn(arn: str, region: str | None, endpoint: str | None) -> StreamAddress:
    found = STREAM_ARN.fullmatch(arn)
    if not found:
        raise OptionError(
            f"The option streamARN is {shown(arn)}; it takes the ARN of a stream, such as "
            "arn:aws:kinesis:eu-west-1:123456789012:stream/flights."
        )
    if region is not None and region != found["region"]:
        raise OptionError(
            f"The option streamARN names a stream in {found['region']}, but the option region "
            f"is {region}. Leave out region: the ARN says it."
        )
    return StreamAddress(found["name"], arn, found["region"], endpoint)


def _by_name(name: str, region: str | None, endpoint: str | None) -> StreamAddress:
    if not STREAM_NAME.fullmatch(name):
        raise OptionError(
            f"The option streamName is {shown(name)}; it takes the name of a stream, or several "
            "with commas between: 1 to 128 letters, digits, '_', '.' and '-' each."
        )
    if region is not None and endpoint is None and region not in known_regions():
        raise OptionError(
            f"The option region is {region!r}, in which Kinesis is not known to exist. "
            f"{nearest_region(region)} If it is a new region, update boto3."
        )
    return StreamAddress(name, None, region, endpoint)
