"""Has one program put the known records into a local server, in a calm play and in a hard one."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkinesis import Record, deaggregate
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.stream.kpl.magic import is_aggregated
from tests.interop.producers import reading
from tests.interop.producers.judging import Seen, Verdict, judge, kcl_drops, unlike
from tests.interop.producers.known import Given
from tests.interop.servers import REGION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 240
_ACCESS_KEY = "program"
_PUTS = {"PutRecord", "PutRecords"}
_REFUSED = {1: frozenset([1, 7]), 2: frozenset([0])}
"""The entries that are refused, by the number of the call."""


@dataclass(frozen=True, slots=True)
class Play:
    """What has come of a program."""

    calls: Counter[str]
    """Its calls, by operation."""
    stored: int
    """Records of the stream, of which some may be aggregates."""
    aggregates: int
    verdict: Verdict
    kcl_drops: int
    """User records of aggregates that a KCL drops, as one of their keys is another shard's."""
    filter_drops: int
    """User records that ``hash_range_filter`` drops."""
    unlike: Sequence[str]
    """Doors that did not deliver what the others did: our fault."""
    sample: Seen


class ProgramError(Exception):
    """A program has ended with an error: its name, and its last lines."""


class Trouble:
    """A plan of faults for what a program puts, with a split of the first shard at its third call.

    The first call has two entries refused, the second its first (of a single record: all of it),
    the fourth fails whole, and the answer of the fifth is lost after it took effect.
    """

    def __init__(self) -> None:
        self.server: LocalServer | None = None
        self._puts = 0

    def __call__(self, call: Call) -> Fault | None:
        if call.operation not in _PUTS or self.server is None:
            return None
        self._puts += 1
        if self._puts in _REFUSED:
            of_many = call.operation == "PutRecords"
            return Fault(
                code="ProvisionedThroughputExceededException",
                message="Rate exceeded for shard",
                entries=_REFUSED[self._puts] if of_many else frozenset(),
            )
        if self._puts == 3:
            self.server.kinesis.call(
                "SplitShard",
                region=call.region,
                StreamName=call.stream,
                ShardToSplit="shardId-000000000000",
                NewStartingHashKey=str(2**125),
            )
        if self._puts == 4:
            return Fault.error("InternalFailure", status=500)
        return Fault.dropped("after") if self._puts == 5 else None


def play(
    command: Sequence[str],
    records: Sequence[Given],
    *,
    trouble: Trouble | None,
    spark: SparkSession | None,
    certificate: Path | None,
    log: Path,
) -> Play:
    """Run a program on a new stream of two shards, and read the stream by each door.

    trouble: None for a play without faults and reshards. spark: None to leave out DataFrames.
    certificate: of a server that speaks TLS.
    Raises `ProgramError`.
    """
    stream = "flights"
    tables = LeaseTables()
    with LocalServer(
        limits=None, faults=trouble, lease_tables=tables, certificate=certificate
    ) as server:
        kinesis = server.client("kinesis", REGION)
        kinesis.create_stream(StreamName=stream, ShardCount=2)
        if trouble is not None:
            trouble.server = server
        _run(command, records, server.endpoint_url, stream, log)
        made = [call for call in server.kinesis.calls if call.access_key == _ACCESS_KEY]
        calls = Counter(call.operation for call in made)
        if trouble is not None:
            trouble.server = None
        return _look(server, stream, records, calls, spark)


def _run(
    command: Sequence[str], records: Sequence[Given], endpoint: str, stream: str, log: Path
) -> None:
    environment = {
        **os.environ,
        "ENDPOINT": endpoint,
        "STREAM": stream,
        "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CBOR_DISABLE": "",
    }
    lines = b"".join(one.line() for one in records)
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                input=lines,
                stdout=output,
                stderr=output,
                env=environment,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProgramError(f"has not ended in {_PATIENCE} s; see {log}") from None
    if done.returncode:
        last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise ProgramError(f"has ended with {done.returncode}: {''.join(last)}; see {log}")


def _look(
    server: LocalServer,
    stream: str,
    records: Sequence[Given],
    calls: Counter[str],
    spark: SparkSession | None,
) -> Play:
    kinesis = server.client("kinesis", REGION)
    shards = kinesis.list_shards(StreamName=stream)["Shards"]
    parents = {
        each["ShardId"]: tuple(
            each[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in each
        )
        for each in shards
    }
    held = reading.stored(server, stream)
    aggregates = [one for one in held if is_aggregated(one["Data"])]
    users = len(deaggregate([_record(one) for one in held]).data)
    processed = reading.by_processors(server, stream, users)
    doors = {reading.PROCESSORS: processed}
    filtered = reading.by_processors(server, stream, users, filtered=True)
    if spark is not None:
        doors[reading.DATAFRAME] = reading.by_dataframe(spark, server, stream)
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    arn = summary["StreamARN"]
    kinesis.update_stream_mode(StreamARN=arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    doors[reading.QUEUE] = reading.by_queue(server, stream, users)
    ranges = {
        each["ShardId"]: (
            int(each["HashKeyRange"]["StartingHashKey"]),
            int(each["HashKeyRange"]["EndingHashKey"]),
        )
        for each in shards
    }
    packed = {(one["shard"]["ShardId"], int(one["SequenceNumber"])) for one in aggregates}
    return Play(
        calls=calls,
        stored=len(held),
        aggregates=len(aggregates),
        verdict=judge(records, processed, parents),
        kcl_drops=kcl_drops(processed, packed, ranges),
        filter_drops=len(processed) - len(filtered),
        unlike=unlike(doors),
        sample=processed[0] if processed else Seen(None, None, b""),
    )


def _record(one: dict[str, Any]) -> Record:
    return Record(
        data=one["Data"],
        partition_key=one.get("PartitionKey"),
        sequence_number=one["SequenceNumber"],
    )
