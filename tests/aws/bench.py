"""What the probes work with: the streams and tables of a run, calls on them, and a time limit."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.table.provisioning import creation
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import CredentialSource, StreamAddress
from sparkinesis.stream.calls.caller import call_client
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import words
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.stream.calls.session import open_session
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import TRIM_HORIZON, Position
from sparkinesis.stream.put_entry import PutEntry, plain_entries
from sparkinesis.stream.reading.budget import CallBudget, Pace
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.aws_options import LeaseTableOptions

PACE = Pace(calls_per_second=4.0)
"""Below the service's limit of five calls a second."""
SECONDS = 1200.0
_MOST_AT_ONCE = 500
_WAITING = {"Delay": 0.5, "MaxAttempts": 360}


class OutOfTimeError(Exception):
    """The time limit of the run has been reached."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a reader sees it."""

    sequence_number: str
    arrived_ms: int
    data: bytes

    @property
    def number(self) -> int:
        return int(self.sequence_number)


class Bench:
    """One run on AWS, or on a server with its API (``endpoint``), with boto3's credentials.

    note: told of the progress. seconds: the time limit, after which every call here raises
    `OutOfTimeError`: it bounds what a run costs.
    """

    def __init__(
        self,
        prefix: str,
        region: str | None,
        endpoint: str | None,
        note: Callable[[str], None],
        *,
        seconds: float = SECONDS,
        pace: Pace = PACE,
    ) -> None:
        self._region = region
        self._endpoint = endpoint
        self.note = note
        self._ends = time.monotonic() + seconds
        self._pace = pace
        self._budgets: dict[tuple[str, str, str], CallBudget] = {}
        self._start = f"{prefix}-sparkinesis-check-{secrets.token_hex(3)}-"
        self._made: dict[str, str] = {}
        """What may exist now: the kind by the name, noted before the call that creates it."""

    def client(self, service: str) -> Any:
        """Return a client that tries again as boto3 does."""
        session = open_session(CredentialSource(), self._region, self._endpoint)
        retries = Config(retries={"mode": "standard"})
        return session.create_client(service, endpoint_url=self._endpoint, config=retries)

    def check(self) -> None:
        """Raise `OutOfTimeError` if the time limit has been reached."""
        if time.monotonic() >= self._ends:
            raise OutOfTimeError("the time limit was reached")

    def sleep(self, seconds: float) -> None:
        self.check()
        time.sleep(seconds)

    def create_stream(self, which: str, shards: int) -> BenchStream:
        """Create a provisioned stream, and wait until it is ACTIVE."""
        name = self._name("stream", which)
        mode = {"StreamMode": "PROVISIONED"}
        self.client("kinesis").create_stream(
            StreamName=name, ShardCount=shards, StreamModeDetails=mode
        )
        self.wait("stream_exists", name)
        # The library's own client: a probe sends what a query or a worker sends.
        address = StreamAddress(name, None, self._region, self._endpoint, CredentialSource())
        return BenchStream(self, StreamClient(address, Backoff(cap=2.0, give_up_after=30.0)))

    def create_table(self, which: str) -> LeaseTable:
        """Create a lease table as a worker does, and wait until it is ACTIVE."""
        name = self._name("table", which)
        self.client("dynamodb").create_table(**creation(name, LeaseTableOptions()))
        self.wait("table_exists", name)
        return LeaseTable(name, self._region, self._endpoint, CredentialSource())

    def wait(self, state: str, name: str) -> None:
        """Wait for a state of a stream or table, by boto3's name for it."""
        kind = state.partition("_")[0]
        waiter = self.client("kinesis" if kind == "stream" else "dynamodb").get_waiter(state)
        waiter.wait(**{f"{kind.title()}Name": name}, WaiterConfig=_WAITING)

    def remove_all(self) -> dict[str, str]:
        """Remove all that was made, and wait until it is gone; return what was not, and why."""
        left = {}
        for name, kind in list(self._made.items()):
            try:
                self.remove(name, kind)
            except (ClientError, BotoCoreError) as error:
                left[f"{kind} {name}"] = words(error)
        return left

    def remove(self, name: str, kind: str = "stream") -> None:
        """Remove a stream or table, which may be missing, in the making or being split."""
        try:
            try:
                self._delete(name, kind)
            except ClientError as error:
                if error_code(error) != "ResourceInUseException":
                    raise
                self.wait(f"{kind}_exists", name)
                self._delete(name, kind)
            self.wait(f"{kind}_not_exists", name)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
        del self._made[name]

    def _delete(self, name: str, kind: str) -> None:
        if kind == "stream":
            self.client("kinesis").delete_stream(StreamName=name, EnforceConsumerDeletion=True)
        else:
            self.client("dynamodb").delete_table(TableName=name)

    def _name(self, kind: str, which: str) -> str:
        self.check()
        name = f"{self._start}{which}"
        self._made[name] = kind
        self.note(f"making {kind} {name}")
        return name

    def budget(self, stream: str, shard_id: str, operation: str) -> CallBudget:
        key = (stream, shard_id, operation)
        return self._budgets.setdefault(key, CallBudget(self._pace))


class BenchStream:
    """The calls on one of the run's streams. They raise `StreamClient`'s errors, too."""

    def __init__(self, bench: Bench, client: StreamClient) -> None:
        self._bench = bench
        self.client = client
        self.name = client.address.name

    def open_shards(self) -> list[Shard]:
        """Return the open shards, by hash key."""
        listed = [shard for shard in self.list_shards()[0] if shard.is_open]
        return sorted(listed, key=lambda shard: shard.hash_range or (0, 0))

    def list_shards(self) -> tuple[list[Shard], int]:
        self._bench.check()
        return self.client.list_shards()

    def is_active(self) -> bool:
        """Return True if the stream is usable and not being resharded."""
        return self.client.describe().status == "ACTIVE"

    def put(self, shard: Shard, *data: bytes) -> None:
        """Put records into a shard by its hash keys."""
        self.put_each([(shard, one) for one in data])

    def put_each(self, records: Sequence[tuple[Shard, bytes]]) -> None:
        """Put records into shards, in one call or in as many as it takes."""
        entries: list[PutEntry] = plain_entries(
            [("check", str((shard.hash_range or (0, 0))[0]), data) for shard, data in records],
            ordered=False,
        )
        while entries:
            self._bench.check()
            sent, entries = entries[:_MOST_AT_ONCE], entries[_MOST_AT_ONCE:]
            results = zip(sent, self.client.put_records(sent), strict=True)
            refused = [entry for entry, result in results if result.shard_id is None]
            if refused:
                self._bench.sleep(0.5)
            entries = refused + entries

    def iterator(self, shard_id: str, position: Position, *, inclusive: bool = False) -> str:
        self._bench.check()
        budget = self._bench.budget(self.name, shard_id, "GetShardIterator")
        return self.client.shard_iterator(shard_id, position, inclusive=inclusive, budget=budget)

    def page(self, shard_id: str, iterator: str, limit: int = 10_000) -> Fetched:
        self._bench.check()
        budget = self._bench.budget(self.name, shard_id, "GetRecords")
        return self.client.get_records(shard_id, iterator, limit, budget)

    def answer(self, shard_id: str, method: str, iterator: str) -> dict[str, Any]:
        """Return what a method of the process's client for GetRecords returns."""
        self._bench.check()
        with self._bench.budget(self.name, shard_id, "GetRecords"):
            ask = getattr(call_client(self.client.address), method)
            answer: dict[str, Any] = ask(ShardIterator=iterator, Limit=10_000)
            return answer

    def first(
        self, shard_id: str, position: Position, *, inclusive: bool = False, pages: int = 8
    ) -> Stored | None:
        """Return the first record of a read from ``position``; None if there is none there."""
        iterator: str | None = self.iterator(shard_id, position, inclusive=inclusive)
        for _ in range(pages):
            if iterator is None:
                break
            page = self.page(shard_id, iterator, 1).page
            if page.records:
                return _stored(page.records[:1])[0]
            iterator = page.next_shard_iterator
        return None

    def read(self, shard_id: str, count: int, position: Position = TRIM_HORIZON) -> list[Stored]:
        """Read until ``count`` records are there, or the shard ends; in the order of delivery."""
        found: list[Stored] = []
        iterator: str | None = self.iterator(shard_id, position)
        while iterator is not None and len(found) < count:
            page = self.page(shard_id, iterator).page
            found += _stored(page.records)
            iterator = page.next_shard_iterator
        return found


def _stored(records: Sequence[Record]) -> list[Stored]:
    return [
        Stored(record.sequence_number, record.arrived_ms or 0, record.data) for record in records
    ]
