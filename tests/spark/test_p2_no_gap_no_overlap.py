"""P2: no gap and no overlap between batches, whatever is killed, while the stream is resharded.

And P1 where it matters most: a batch that a kill interrupted gives the same rows when replayed,
also by the other consumerMode.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import MODES
from tests.spark.query_process import kill, open_batches, query_process, wait_until
from tests.streams import active_shards, merge_neighbours, split

SEED = 20261121
QUERY = "tests.spark.idempotent_query"


class Producer(threading.Thread):
    """Puts numbered user records, one call in two as KPL aggregates, and reshards now and then."""

    def __init__(self, kinesis: Any, stream: str, rng: random.Random, reshard_every: int) -> None:
        super().__init__(daemon=True)
        self._kinesis = kinesis
        self._stream = stream
        self._rng = rng
        self._reshard_every = reshard_every
        self._stopping = threading.Event()
        self.put = 0
        self.reshards = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            rounds = 0
            while not self._stopping.wait(0.1):
                rounds += 1
                self._put_some(aggregated=rounds % 2 == 0)
                if rounds % self._reshard_every == 0:
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


class Progress:
    """What the query of one stream has written so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def batches(self) -> int:
        return len(list(self.folder.glob("batch-*.json")))

    def more_batches(self, count: int) -> Callable[[], bool]:
        """Whether so many more are written than now."""
        wanted = self.batches() + count
        return lambda: self.batches() >= wanted

    def is_in_a_batch(self) -> bool:
        return bool(open_batches(self.folder))

    def delivered(self) -> Counter[int]:
        return Counter(
            int(data)
            for path in self.folder.glob("batch-*.json")
            for *_, data in json.loads(path.read_text())
        )


@pytest.mark.parametrize(
    ("interruptions", "reshard_every"), [(2, 40), pytest.param(20, 75, marks=pytest.mark.long)]
)
def test_p2_every_user_record_exactly_once_through_interrupted_batches(
    server: LocalServer, stream_name: str, tmp_path: Path, interruptions: int, reshard_every: int
) -> None:
    """Each kill ends two queries of a stream each, one of each consumerMode; they may change it.

    After the last kill they do.
    """
    rng = random.Random(SEED)
    kinesis = server.client("kinesis")
    log = tmp_path / "query.log"
    output = tmp_path / "output"
    output.mkdir()
    producers: dict[str, Producer] = {}
    progress: dict[str, Progress] = {}
    for stream in (f"{stream_name}-1", f"{stream_name}-2"):
        kinesis.create_stream(StreamName=stream, ShardCount=2)
        producers[stream] = Producer(kinesis, stream, random.Random(stream), reshard_every)
        progress[stream] = Progress(output / stream)
        producers[stream].start()

    def started(modes: dict[str, str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
        queries = [f"{stream}:{mode}" for stream, mode in modes.items()]
        return query_process(QUERY, [server.endpoint_url, str(output), *queries], log)

    def chosen() -> dict[str, str]:
        return dict(zip(progress, rng.sample(list(MODES), 2), strict=True))

    kills = 0
    interrupted: Counter[str] = Counter()
    least = max(1, interruptions // 4)
    while interrupted.total() < interruptions or min(interrupted[m] for m in MODES) < least:
        modes = chosen()
        with started(modes) as process:
            for written in progress.values():
                wait_until(written.more_batches(rng.randrange(2)), process, log, every=0.1)
            time.sleep(rng.uniform(0.0, 1.0))  # the instant of the kill is what is random
            wait_until(lambda: all(p.is_in_a_batch() for p in progress.values()), process, log)
            kill(process)
            kills += 1
            interrupted.update(modes[s] for s, p in progress.items() if p.is_in_a_batch())
    for producer in producers.values():
        producer.stop()

    with started(dict(zip(modes, reversed(modes.values()), strict=True))) as process:
        wait_until(
            lambda: all(p.delivered().total() >= producers[s].put for s, p in progress.items()),
            process,
            log,
            every=0.5,  # each look parses all that was written
        )
    for stream, written in progress.items():
        counts = written.delivered()
        assert set(counts) == set(range(producers[stream].put)), "a record was lost"
        assert set(counts.values()) == {1}, "a record was delivered twice"
        assert list(written.folder.glob("differs-*")) == [], "a replayed batch gave other rows"
        assert producers[stream].reshards >= least
    assert sum(c.records for c in server.kinesis.calls.select("SubscribeToShardEvent"))
    put = sum(producer.put for producer in producers.values())
    print(f"{kills} kills, {dict(interrupted)} interrupted, {put} user records")
