"""The table of all options of ``format("kinesis")``, parsed and checked before any call to AWS.

Options are named as in Databricks' Kinesis source where it has them, and are not case-sensitive,
like all Spark options. An option that does not apply to a query's use of the source is an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from sparkinesis.errors import OptionError
from sparkinesis.source.options.batch_boundary import boundary
from sparkinesis.source.options.stream_names import stream_addresses
from sparkinesis.source.options.values import (
    age,
    boolean,
    drift,
    duration,
    integer,
    limit,
    one_of,
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
    size_within,
)
from sparkinesis.stream.address import StreamAddress, shown
from sparkinesis.stream.credentials import CredentialSource
from sparkinesis.stream.position import LATEST, TRIM_HORIZON
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL


class Use(Enum):
    """The ways to use the source; each option is for one or more of them."""

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
    """The parser of an option's text (None: not given), and the uses that take the option."""

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
    "removedStreams": Option(one_of("fail", "drop"), _STREAMING),
    "deaggregate": Option(boolean(True)),
    "failOnDataLoss": Option(boolean(True)),
    "maxRecordsPerFetch": Option(integer(MAX_RECORDS_PER_CALL, 1, MAX_RECORDS_PER_CALL)),
    "minFetchPeriod": Option(duration(1.0), _STREAMING),
    "skipOlderThan": Option(age, _STREAMING),
    "maxRecordsPerTrigger": Option(limit, _STREAMING),
    "maxBytesPerTrigger": Option(size, _STREAMING),
    "minRowsPerTrigger": Option(integer(0, 0, 10**18), _STREAMING),
    "maxTriggerDelay": Option(duration(900.0), _STREAMING),
    "maxShardDrift": Option(drift, _STREAMING),
    "shardCallsPerSecond": Option(rate(5)),
    "shardBytesPerSecond": Option(rate(2_000_000)),
    "ordered": Option(boolean(False), _WRITING),
    "aggregation": Option(boolean(False), _WRITING),
    "aggregationMaxSize": Option(size_within(51_200, 64, 1_048_576), _WRITING),
    "maxRecordSize": Option(size_within(1_048_576, 1024, 10_485_760), _WRITING),
    # Spark's own options, which it passes to the sink of a streaming query.
    "checkpointLocation": Option(read_text, _WRITING),
    "queryName": Option(read_text, _WRITING),
}

_LISTS = {"streamName", "streamARN"}
_MAPS = {"startingPosition", "endingPosition"}
_LONGEST = 4_096
"""The most characters of a value that is no list and no JSON map; every ARN is shorter."""

_CREDENTIALS = re.compile(r"(aws|sts)*(access|secret|secretaccess)key(id)?|(aws|sts)*sessiontoken")


class Options:
    """The options of one query, each parsed and checked by itself. Raises `OptionError`.

    Unknown names are refused by `check_use`, because only a use says which options there are.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in OPTIONS}
        for name in options:
            if _CREDENTIALS.fullmatch(re.sub("[^a-z]", "", name.lower())):
                raise OptionError(
                    f"The option {name} is refused: credentials in options end up in query plans "
                    "and logs. Give the driver and the executors a role, a profile, or the "
                    "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. To assume "
                    "a role with those credentials, set the option roleArn."
                )
        self.unknown = tuple(name for name in options if name.lower() not in known)
        """The names that are no option's, as Spark hands them over: in lower case."""
        texts = {
            known[name.lower()]: text for name, text in options.items() if name.lower() in known
        }
        self.given = frozenset(texts)
        """The options that are given, by their documented names."""
        for name, text in texts.items():
            is_map = name in _MAPS and text.lstrip().startswith("{")
            if len(text) > _LONGEST and name not in _LISTS and not is_map:
                raise OptionError(
                    f"The option {name} has {len(text):,} characters; it takes at most "
                    f"{_LONGEST:,}."
                )
        self._values = {
            name: option.read(name, texts.get(name)) for name, option in OPTIONS.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def check_use(self, *uses: Use) -> None:
        """Raise `OptionError` if an option that is given applies to none of ``uses``.

        More than one use is given if it is not known yet which of them it is.
        """
        if self.unknown:
            raise OptionError(_unknown(self.unknown[0], uses))
        for name in OPTIONS:
            if name in self.given and OPTIONS[name].uses.isdisjoint(uses):
                raise OptionError(
                    f"The option {name} is for {_named(OPTIONS[name].uses)}, not for "
                    f"{_named(uses)}, which takes: {', '.join(_taken(uses))}."
                )

    def addresses(self) -> tuple[StreamAddress, ...]:
        """Return the streams, in the order given. Raises `OptionError`."""
        credentials = self._credential_source()
        found = stream_addresses(
            self["streamName"], self["streamARN"], self["region"], self["endpoint"]
        )
        return tuple(replace(address, credentials=credentials) for address in found)

    def _credential_source(self) -> CredentialSource:
        if self["roleArn"] is None:
            for name in ("roleExternalId", "roleSessionName", "stsEndpoint"):
                if name in self.given:
                    raise OptionError(
                        f"The option {name} has no effect without a role to assume: "
                        "set the option roleArn too."
                    )
        return CredentialSource(
            self["profile"],
            self["roleArn"],
            self["roleExternalId"],
            self["roleSessionName"],
            self["stsEndpoint"],
        )


def _named(uses: Collection[Use]) -> str:
    return " and ".join(sorted(use.value for use in uses))


def _taken(uses: Collection[Use]) -> list[str]:
    return [name for name, option in OPTIONS.items() if not option.uses.isdisjoint(uses)]


def _unknown(name: str, uses: Collection[Use]) -> str:
    taken = _taken(uses)
    # A name of another use is suggested only if none of this use is much like it.
    near = _nearest(name, taken, 0.8) or _nearest(name, OPTIONS, 0.5)
    elsewhere = f" (of {_named(OPTIONS[near].uses)})" if near and near not in taken else ""
    hint = f"Did you mean {near}{elsewhere}? " if near else ""
    return (
        f"The kinesis source has no option {shown(name)}. {hint}For {_named(uses)} it takes: "
        f"{', '.join(taken)}."
    )


def _nearest(name: str, among: Iterable[str], likeness: float) -> str | None:
    names = {known.lower(): known for known in among}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=likeness)
    return names[near[0]] if near else None
