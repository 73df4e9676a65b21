"""A stream with a clock of the test's, and the lease table of an application on it."""

from __future__ import annotations

import uuid

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.children import UNSEEN, ShardEnd
from sparkinesis.lease.shards.shard_ends import ShardEnds
from sparkinesis.lease.shards.shard_syncer import ShardSyncer, ShardSyncSettings
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, InitialPosition
from sparkinesis.worker.reporting.event_log import EventLog
from tests.kcl import create_table

START = 1_790_000_000_000
HOUR = 3_600_000
SYNC = ShardSyncSettings(
    audit_interval=120,
    audit_confidence=3,
    cleanup_interval=60,
    cleanup_leases=True,
    parents_first=True,
)
SHARDS = [f"shardId-{n:012d}" for n in range(8)]
PLACE = ExtendedSequenceNumber("49680417772080139964390719210533025828023069882475085842")


class TimedStream:
    """A stream, its application's table, and those who take care of it."""

    def __init__(self, server: LocalServer, clock: ManualClock, shards: int) -> None:
        self.name = f"s-{uuid.uuid4().hex[:8]}"
        self.clock = clock
        self.kinesis, self.dynamodb = server.client("kinesis"), server.client("dynamodb")
        self.kinesis.create_stream(StreamName=self.name, ShardCount=shards)
        create_table(self.dynamodb, self.name)
        address = StreamAddress(self.name, None, "us-east-1", server.endpoint_url)
        self.client = StreamClient(address, wall_clock_ms=clock)
        self.table = LeaseTable(self.name, "us-east-1", server.endpoint_url)
        self.now = 1000.0

    def shard_syncer(
        self,
        initial: InitialPosition = LATEST,
        table: LeaseTable | None = None,
        first: InitialPosition | None = None,
    ) -> ShardSyncer:
        leases = self.leases(initial, table, first)
        return ShardSyncer(leases, settings=SYNC, clock=lambda: self.now, phase=0.0)

    def leases(
        self,
        initial: InitialPosition,
        table: LeaseTable | None = None,
        first: InitialPosition | None = None,
    ) -> StreamLeases:
        made = StreamLeases(
            self.client,
            table or self.table,
            "me",
            initial=initial,
            first=first,
            wait=lambda _: None,
            publish=EventLog("app", "me"),
        )
        made.identify()
        return made

    def make_anew(self, shards: int) -> None:
        """Deletes the stream, and makes another one of its name."""
        self.kinesis.delete_stream(StreamName=self.name)
        self.clock.advance(5_000)
        self.kinesis.create_stream(StreamName=self.name, ShardCount=shards)

    def split(self, number: int, *, at_64ths: int) -> None:
        self.kinesis.split_shard(
            StreamName=self.name,
            ShardToSplit=SHARDS[number],
            NewStartingHashKey=str(2**122 * at_64ths),
        )

    def merge(self, one: int, other: int) -> None:
        self.kinesis.merge_shards(
            StreamName=self.name, ShardToMerge=SHARDS[one], AdjacentShardToMerge=SHARDS[other]
        )

    def delete(self, number: int) -> None:
        """Deletes a lease, like an operator by hand."""
        key = {"leaseKey": {"S": SHARDS[number]}}
        self.dynamodb.delete_item(TableName=self.name, Key=key)

    def checkpoint(self, number: int, at: ExtendedSequenceNumber = PLACE) -> None:
        row = self.table.get(SHARDS[number])
        assert row is not None
        self.table.write(requests.checkpoint(self.table.write(requests.take(row, "me")), at))

    def rows(self) -> dict[int, Lease]:
        return {int(row.shard_id[-12:]): row for row in self.table.leases()}

    def beginnings(self) -> dict[int, tuple[str, int | None]]:
        """The sentinel and instant of each shard that was not begun, by shard."""
        return {
            number: (row.checkpoint.sequence_number, row.timestamp_ms)
            for number, row in self.rows().items()
            if row.checkpoint.is_sentinel and not row.is_finished
        }

    def end(self, number: int, initial: InitialPosition = LATEST, end: ShardEnd = UNSEEN) -> bool:
        """A reader comes to the end of a shard; whether its children have leases then."""
        row = self.table.get(SHARDS[number])
        assert row is not None
        held = LeaseRenewer(self.table, "me", 10, lambda: self.now).hold(
            self.table.write(requests.take(row, "me"))
        )
        shards, _ = self.client.list_shards()
        children = [shard for shard in shards if held.shard_id in shard.parents]
        ends = ShardEnds(self.leases(initial), clock=lambda: self.now, recheck=60.0)
        if not ends.create_child_leases(held, children, end):
            return False
        held.checkpoint(ExtendedSequenceNumber(SHARD_END))
        return True
