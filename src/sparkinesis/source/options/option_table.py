"""The table of all options of ``format("kinesis")``, parsed and checked before any call to AWS.

Options are named as in Databricks' Kinesis source where it has them, and are not case-sensitive,
like all Spark options. An option that does not apply to a query's use of the source is an error.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from msgspec.structs import replace

from sparkinesis.errors import Check, OptionError
from sparkinesis.source.options.positions import boundary, initial_position
from sparkinesis.source.options.values import (
    Parser,
    age,
    boolean,
    consumer_mode,
    consumer_name,
    drift,
    duration,
    endpoint,
    external_id,
    integer,
    one_of,
    rate,
    region,
    role_arn,
    session_name,
    size,
    size_within,
    some_of,
    stream_addresses,
    text,
)
from sparkinesis.stream.address import DEFAULT_SESSION_NAME, CredentialSource, StreamAddress, shown
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL
from sparkinesis.stream.position import LATEST, TRIM_HORIZON


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
    """An option: the parser of its text, the uses that take it, and its value if not given."""

    parse: Parser[Any]
    uses: frozenset[Use] = _READING
    default: Any = None


ROW_COLUMNS = (
    "partitionKey",
    "data",
    "stream",
    "shardId",
    "sequenceNumber",
    "approximateArrivalTimestamp",
    "subSequenceNumber",
    "explicitHashKey",
)
"""The columns of a read, in the order in which they come unless the option says otherwise."""

OPTIONS: Mapping[str, Option] = {
    "streamName": Option(text, _ANY_USE),
    "streamARN": Option(text, _ANY_USE),
    "region": Option(region, _ANY_USE),
    "endpoint": Option(endpoint, _ANY_USE),
    "profile": Option(text, _ANY_USE),
    "roleArn": Option(role_arn, _ANY_USE),
    "roleExternalId": Option(external_id, _ANY_USE),
    "roleSessionName": Option(session_name, _ANY_USE, DEFAULT_SESSION_NAME),
    "stsEndpoint": Option(endpoint, _ANY_USE),
    "initialPosition": Option(initial_position, _STREAMING, LATEST),
    "dynamodbEndpoint": Option(endpoint, _STREAMING),
    "consumerMode": Option(consumer_mode, _STREAMING, "polling"),
    "consumerName": Option(consumer_name, _STREAMING),
    "requireConsumerDeregistration": Option(boolean, _STREAMING, False),
    "startingPosition": Option(boundary, _BATCH, TRIM_HORIZON),
    "endingPosition": Option(boundary, _BATCH, LATEST),
    "filterPushdown": Option(boolean, _BATCH, False),
    "removedStreams": Option(one_of("fail", "drop"), _STREAMING, "fail"),
    "columns": Option(some_of(*ROW_COLUMNS), default=ROW_COLUMNS),
    "deaggregate": Option(boolean, default=True),
    "failOnDataLoss": Option(boolean, default=True),
    "maxRecordsPerFetch": Option(integer(1, MAX_RECORDS_PER_CALL), default=MAX_RECORDS_PER_CALL),
    "minFetchPeriod": Option(duration, _STREAMING),
    "skipOlderThan": Option(age, _STREAMING),
    "maxRecordsPerTrigger": Option(integer(1), _STREAMING, math.inf),
    "maxBytesPerTrigger": Option(size, _STREAMING, math.inf),
    "minRowsPerTrigger": Option(integer(0), _STREAMING, 0),
    "maxTriggerDelay": Option(duration, _STREAMING, 900.0),
    "maxShardDrift": Option(drift, _STREAMING, 0.0),
    "shardCallsPerSecond": Option(rate, default=5.0),
    "shardBytesPerSecond": Option(rate, default=2_000_000.0),
    "ordered": Option(boolean, _WRITING, False),
    "aggregation": Option(boolean, _WRITING, False),
    "aggregationMaxSize": Option(size_within(64, 1_048_576), _WRITING, 51_200),
    "maxRecordSize": Option(size_within(1024, 10_485_760), _WRITING, 1_048_576),
    # Spark's own options, which it passes to the sink of a streaming query.
    "checkpointLocation": Option(text, _WRITING),
    "queryName": Option(text, _WRITING),
}

CONNECTOR = {
    "kinesis.startingposition": "initialPosition",
    "kinesis.endpointurl": "endpoint",
    "kinesis.consumertype": "consumerMode",
    "kinesis.maxfetchrecordspershard": "maxRecordsPerTrigger",
    "kinesis.getrecords.numberofrecordsperfetch": "maxRecordsPerFetch",
    "kinesis.stsrolearn": "roleArn",
    "kinesis.stssessionname": "roleSessionName",
    "kinesis.stsendpointurl": "stsEndpoint",
    "kinesis.sink.aggregationenabled": "aggregation",
}
"""Options of awslabs' connector, in lower case, whose names do not resemble those here."""

_KNOWN = {name.lower(): name for name in OPTIONS}
_LISTS = {"streamName", "streamARN"}
_MAPS = {"startingPosition", "endingPosition"}
_LONGEST = 4_096
"""The most characters of a value that is no list and no JSON map; every ARN is shorter."""

_CREDENTIALS = re.compile(r"(aws|sts)*(access|secret|secretaccess)key(id)?|(aws|sts)*sessiontoken")


def refuse_credentials(names: Iterable[str]) -> None:
    """Raise `OptionError` if an option would hold credentials."""
    for name in (name.removeprefix("option.") for name in names):
        if _CREDENTIALS.fullmatch(re.sub("[^a-z]", "", name.lower())):
            raise OptionError(
                f"The option {name} is refused: credentials in options end up in query plans and "
                "logs, and those of a table in the catalog. Give the driver and the executors a "
                "role, a profile, or the environment variables AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY. To assume a role with those credentials, set the option "
                "roleArn."
            )


def options_for(options: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options that apply to a use; all of them are known."""
    return {
        name: value for name, value in options.items() if use in OPTIONS[_KNOWN[name.lower()]].uses
    }


def nearest_option(name: str, likeness: float) -> str | None:
    """Return the option whose name is most like this one; None if none is so like it, of 0 to 1."""
    return _nearest(name, OPTIONS, likeness)


class Options:
    """The options of one query, each by itself."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raise `OptionError` if an option would hold credentials."""
        refuse_credentials(options)
        self.unknown = tuple(name for name in options if name.lower() not in _KNOWN)
        """The names that are no option's, as Spark hands them over: in lower case."""
        self._texts = {
            _KNOWN[name.lower()]: value for name, value in options.items() if name.lower() in _KNOWN
        }
        self.given = frozenset(self._texts)
        """The options that are given, by their documented names."""
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option. Raises `OptionError` if its text is wrong."""
        if name in self.given and name not in self._values:
            self._values[name] = self._parse(name, self._texts[name])
        return self._values.get(name, OPTIONS[name].default)

    def checks(self, uses: Collection[Use]) -> Iterator[Check]:
        """Yield the checks of the names, and of each value by itself.

        An option that is given must apply to one of ``uses``. More than one use is given if it is
        not known yet which of them it is.
        """
        refused = {name: partial(_refuse_unknown, name, uses) for name in self.unknown}
        known = [name for name in OPTIONS if name in self.given]
        for name in known:
            if OPTIONS[name].uses.isdisjoint(uses):
                refused[name] = partial(_refuse_use, name, uses)
        for number, refuse in enumerate(refused.values(), 1):
            # Of several errors, the last one lists the options that there are.
            yield (), partial(refuse, is_last=number == len(refused))
        for name in known:
            yield (name,), partial(self.__getitem__, name)

    def meant(self, uses: Collection[Use]) -> frozenset[str]:
        """Return the options that the unknown names may be meant to be."""
        near = (_nearest_of_use(name, _taken(uses)) for name in self.unknown)
        return frozenset(filter(None, near))

    def _parse(self, name: str, value: str) -> Any:
        is_map = name in _MAPS and value.lstrip().startswith("{")
        if len(value) > _LONGEST and name not in _LISTS and not is_map:
            raise OptionError(
                f"The option {name} has {len(value):,} characters; it takes at most {_LONGEST:,}."
            )
        return OPTIONS[name].parse(name, value)

    @property
    def names_a_stream(self) -> bool:
        return not self.given.isdisjoint(_LISTS)

    def addresses(self) -> tuple[StreamAddress, ...]:
        """Return the streams, in the order given. Raises `OptionError`."""
        credentials = CredentialSource(
            self["profile"],
            self["roleArn"],
            self["roleExternalId"],
            self["roleSessionName"],
            self["stsEndpoint"],
        )
        found = stream_addresses(
            self["streamName"], self["streamARN"], self["region"], self["endpoint"]
        )
        return tuple(replace(address, credentials=credentials) for address in found)


def _named(uses: Collection[Use]) -> str:
    return "a table" if len(uses) == len(Use) else " and ".join(sorted(use.value for use in uses))


def _taken(uses: Collection[Use]) -> list[str]:
    return [name for name, option in OPTIONS.items() if not option.uses.isdisjoint(uses)]


def _refuse_use(name: str, uses: Collection[Use], *, is_last: bool) -> None:
    every = f", which takes: {', '.join(_taken(uses))}" if is_last else ""
    raise OptionError(
        f"The option {name} is for {_named(OPTIONS[name].uses)}, not for {_named(uses)}{every}."
    )


def _refuse_unknown(name: str, uses: Collection[Use], *, is_last: bool) -> None:
    taken = _taken(uses)
    near = _nearest_of_use(name, taken)
    elsewhere = f" (of {_named(OPTIONS[near].uses)})" if near and near not in taken else ""
    hint = f" Did you mean {near}{elsewhere}?" if near else ""
    every = f" For {_named(uses)} it takes: {', '.join(taken)}." if is_last else ""
    raise OptionError(f"The kinesis source has no option {shown(name)}.{hint}{every}")


def _nearest_of_use(name: str, taken: Collection[str]) -> str | None:
    """Return the option that a name may be meant to be; ``taken``: those of the use.

    An option of another use is returned only if none of this use is much like the name.
    """
    near = CONNECTOR.get(name.lower())
    return near if near in taken else _nearest(name, taken, 0.8) or nearest_option(name, 0.5)


def _nearest(name: str, among: Iterable[str], likeness: float) -> str | None:
    names = {known.lower(): known for known in among}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=likeness)
    return names[near[0]] if near else None
