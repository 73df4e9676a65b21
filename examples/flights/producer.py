"""Puts events into the stream as fast as its shards accept them, most of them aggregated."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from examples.flights.shards import ShardMap
from sparkinesis import aggregate, hash_key

EVENTS_AT_A_TIME = 1_500
MOST_ENTRIES = 500
"""Records of one PutRecords call; Kinesis allows no more."""
AGGREGATE_BYTES = 6_000
"""Bytes of one aggregated record: a few dozen events."""
PLAIN_ONE_IN = 5
"""One aircraft in five reports through a producer that does not aggregate."""

Event = tuple[str, bytes]
"""Partition key and data."""


class Producer(threading.Thread):
    """Sends events in order, up to the allowed count, and retries refused records.

    ``events_per_second`` limits the rate further than the shards do.
    """

    def __init__(
        self,
        kinesis: Any,
        stream: str,
        events: Sequence[Event],
        events_per_second: float = float("inf"),
        at_a_time: int = EVENTS_AT_A_TIME,
    ) -> None:
        super().__init__(name="producer", daemon=True)
        self.sent = 0
        self.throttled = 0
        """Records that exceeded a shard's limits; each was sent again."""
        self.seconds = 0.0
        """Time spent on sending."""
        self.failure: Exception | None = None
        self._kinesis = kinesis
        self._stream = stream
        self._events = events
        self._pace = events_per_second
        self._at_a_time = at_a_time
        self._shards = ShardMap(kinesis, stream)
        self._permission = threading.Condition()
        self._allowed = 0

    def allow(self, count: int) -> None:
        """Allow the first ``count`` events."""
        with self._permission:
            self._allowed = count
            self._permission.notify()

    def run(self) -> None:
        try:
            while self.sent < len(self._events):
                with self._permission:
                    self._permission.wait_for(lambda: self._allowed > self.sent)
                    end = min(self.sent + self._at_a_time, self._allowed)
                started = time.monotonic()
                self._send(self._records(self._events[self.sent : end]))
                not_before = started + (end - self.sent) / self._pace
                time.sleep(max(0.0, not_before - time.monotonic()))
                self.seconds += time.monotonic() - started
                self.sent = end
        except Exception as error:  # noqa: BLE001 - the demo raises it
            self.failure = error

    def _records(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Return plain records, and aggregated records with keys of one shard each."""
        plain: list[Event] = []
        by_shard: dict[str, list[tuple[str, None, bytes]]] = {}
        for key, data in events:
            if hash_key(key, None) % PLAIN_ONE_IN == 0:
                plain.append((key, data))
            else:
                by_shard.setdefault(self._shards.shard_of(key), []).append((key, None, data))
        packed = [
            (blob.partition_key, blob.data)
            for users in by_shard.values()
            for blob in aggregate(users, AGGREGATE_BYTES)
        ]
        return [{"PartitionKey": key, "Data": data} for key, data in packed + plain]

    def _send(self, records: list[dict[str, Any]]) -> None:
        tries = 0
        while records:
            batch, rest = records[:MOST_ENTRIES], records[MOST_ENTRIES:]
            results = self._kinesis.put_records(StreamName=self._stream, Records=batch)["Records"]
            refused = [e for e, r in zip(batch, results, strict=True) if "ErrorCode" in r]
            records = refused + rest
            self.throttled += len(refused)
            self._shards.learn(results)
            if refused:
                tries += 1
                time.sleep(random.uniform(0.0, min(0.4, 0.05 * 2**tries)))
