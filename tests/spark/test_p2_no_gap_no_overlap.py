"""P2: no gap and no overlap between batches, whatever is killed, while the stream is resharded.

And P1 where it matters most: a batch that a kill interrupted gives the same rows when replayed.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sparkinesis.local import LocalServer
from sparkinesis.stream.aggregation import aggregate
from tests.spark.query_process import kill, open_batches, query_process, wait_until
from tests.streams import active_shards, merge_neighbours, split

KILLS_IN_A_BATCH = 20
SEED = 20261121
QUERY = "tests.spark.idempotent_query"


class Producer(threading.Thread):
    """Puts numbered user records, one call in two as KPL aggregates, and reshards now and then."""

    def __init__(self, kinesis: Any, stream: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._kinesis = kinesis
        self._stream = stream
        self._rng = rng
        self._stopping = threading.Event()
        self.put = 0
        self.reshards = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            rounds = 0
            while not self._stopping.wait(0.05):
                rounds += 1
                self._put_some(aggregated=rounds % 2 == 0)
                if rounds % 150 == 0:
                    self._reshard()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _put_some(self, *, aggregated: bool) -> None:
        count = self._rng.randrange(5, 25)
        users = [
            (f"key-{self._rng.randrange(50)}", None, b"%d" % n)
            for n in range(self.put, self.put + count)
        ]
        if aggregated:
            entries = [{"Data": a.data, "PartitionKey": a.partition_key} for a in aggregate(users)]
        else:
            entries = [{"Data": data, "PartitionKey": key} for key, _, data in users]
        while entries:
            answer = self._kinesis.put_records(StreamName=self._stream, Records=entries)
            failed = [r.get("ErrorCode") for r in answer["Records"]]
            entries = [e for e, code in zip(entries, failed, strict=True) if code]
        self.put += count

    def _reshard(self) -> None:
        if len(active_shards(self._kinesis, self._stream)) < 4:
            split(self._kinesis, self._stream, self._rng)
        else:
            merge_neighbours(self._kinesis, self._stream, self._rng)
        self.reshards += 1


def test_p2_every_user_record_exactly_once_through_twenty_kills(
    server: LocalServer, stream_name: str, checkpoint: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    output, log = tmp_path / "output", tmp_path / "query.log"
    output.mkdir()
    arguments = [server.endpoint_url, stream_name, checkpoint, str(output)]
    producer = Producer(kinesis, stream_name, rng)
    producer.start()
    kills_in_a_batch = 0
    kills = 0
    while kills_in_a_batch < KILLS_IN_A_BATCH:
        with query_process(QUERY, arguments, log) as process:
            before = len(list(output.glob("batch-*.json")))
            wanted = before + rng.randrange(2)
            wait_until(lambda: len(list(output.glob("batch-*.json"))) >= wanted, process, log)  # noqa: B023
            time.sleep(rng.uniform(0.0, 1.0))  # the instant of the kill is what is random
            wait_until(lambda: open_batches(output), process, log)
            kill(process)
            kills += 1
            kills_in_a_batch += bool(open_batches(output))
    producer.stop()

    def delivered() -> Counter[int]:
        return Counter(
            int(data)
            for path in output.glob("batch-*.json")
            for *_, data in json.loads(path.read_text())
        )

    with query_process(QUERY, arguments, log) as process:
        wait_until(lambda: len(delivered()) >= producer.put, process, log)
    counts = delivered()
    assert set(counts) == set(range(producer.put)), "a record was lost"
    assert set(counts.values()) == {1}, "a record was delivered twice"
    assert list(output.glob("differs-*")) == [], "a replayed batch gave other rows"
    assert producer.reshards >= 5
    print(f"{kills} kills, {producer.put} user records, {producer.reshards} reshards")
