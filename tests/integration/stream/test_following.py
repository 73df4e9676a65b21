"""A stream that is followed through reshards, within the calls that its shards permit."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched, Page
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, InitialPosition
from sparkinesis.stream.reading.following import TIP_PAUSE, ShardPage, follow, new_shards
from sparkinesis.stream.shard import Lineage
from tests.integration.stream.conftest import SHARD
from tests.pace import eventually
from tests.streams import active_shards, merge_neighbours, put_all, split

KEYS = [f"k{number}" for number in range(8)]


@pytest.fixture
def calls() -> list[Call]:
    """All calls that the server has seen."""
    return []


@pytest.fixture
def server(calls: list[Call]) -> Iterator[LocalServer]:
    with LocalServer(faults=calls.append) as running:
        running.client("kinesis").create_stream(StreamName="s", ShardCount=2)
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    return server.client("kinesis")


@pytest.fixture
def client(server: LocalServer) -> StreamClient:
    return StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint_url))


def put(kinesis: Any, first: int) -> list[int]:
    """Put the next five numbers of each key."""
    numbers = list(range(first, first + 5))
    entries = [{"Data": b"%d" % one, "PartitionKey": key} for one in numbers for key in KEYS]
    put_all(kinesis, "s", entries)
    return numbers


def numbers_of(pages: Iterable[ShardPage]) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = defaultdict(list)
    for page in pages:
        for record in page.records:
            found[record.partition_key].append(int(record.data))
    return dict(found)


class Following:
    """A thread that follows the stream."""

    def __init__(self, client: StreamClient, start: InitialPosition) -> None:
        self.pages: list[ShardPage] = []
        self._thread = threading.Thread(target=self._run, args=(client, start), daemon=True)
        self._thread.start()

    def _run(self, client: StreamClient, start: InitialPosition) -> None:
        with closing(follow(client, start)) as pages:
            for page in pages:
                self.pages.append(page)
                if any(record.data == b"-1" for record in page.records):
                    return

    def wait_for(self, numbers: list[int]) -> None:
        wanted = dict.fromkeys(KEYS, numbers)
        eventually(lambda: numbers_of(list(self.pages)) == wanted)

    def end(self, kinesis: Any) -> None:
        put_all(kinesis, "s", [{"Data": b"-1", "PartitionKey": "end"}])
        self._thread.join()


def test_each_key_is_in_order_through_splits_and_merges(client: StreamClient, kinesis: Any) -> None:
    numbers = put(kinesis, 0)
    watcher = Following(client, TRIM_HORIZON)
    watcher.wait_for(numbers)
    split(kinesis, "s")
    numbers += put(kinesis, 5)
    merge_neighbours(kinesis, "s", index=1)
    numbers += put(kinesis, 10)
    watcher.wait_for(numbers)
    watcher.end(kinesis)
    read = [page.shard_id for page in watcher.pages]
    assert {one["ShardId"] for one in active_shards(kinesis, "s")} <= set(read)


def test_an_answer_like_that_of_an_end_ends_nothing(
    server: LocalServer, client: StreamClient, kinesis: Any
) -> None:
    """Each second answer lacks the iterator of the next page; the last one its children, too."""
    lost = Fault(omit=frozenset({"NextShardIterator", "ChildShards"}))
    server.kinesis.faults = lambda call: (
        lost if call.operation == "GetRecords" and call.ordinal % 2 else None
    )
    numbers = put(kinesis, 0)
    watcher = Following(client, TRIM_HORIZON)
    watcher.wait_for(numbers)
    numbers += put(kinesis, 5)
    watcher.wait_for(numbers)
    split(kinesis, "s")
    numbers += put(kinesis, 10)
    watcher.wait_for(numbers)
    watcher.end(kinesis)


def test_latest_is_the_time_of_the_first_call(
    client: StreamClient, kinesis: Any, calls: list[Call]
) -> None:
    put(kinesis, 0)
    put_by = time.time_ns() // 1_000_000
    eventually(lambda: time.time_ns() // 1_000_000 > put_by)
    assert list(follow(client, LATEST, ends=True)) == []
    calls.clear()
    watcher = Following(client, LATEST)
    eventually(lambda: "GetRecords" in {call.operation for call in calls})
    numbers = put(kinesis, 5)
    watcher.wait_for(numbers)
    watcher.end(kinesis)


def test_all_that_is_there_is_read_in_order_and_then_it_ends(
    client: StreamClient, kinesis: Any
) -> None:
    numbers = put(kinesis, 0)
    merge_neighbours(kinesis, "s")
    numbers += put(kinesis, 5)
    split(kinesis, "s")
    numbers += put(kinesis, 10)
    pages = list(follow(client, TRIM_HORIZON, ends=True))
    assert numbers_of(pages) == dict.fromkeys(KEYS, numbers)


def test_what_comes_later_is_not_there_now(calls: list[Call]) -> None:
    """The first pages are empty, and the tip is ahead of them: records are put in the meantime."""
    with LocalServer(faults=calls.append, empty_pages=4) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        client = StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint_url))
        numbers = put(kinesis, 0)
        seen: list[ShardPage] = []
        reader = threading.Thread(
            target=lambda: seen.extend(follow(client, TRIM_HORIZON, ends=True))
        )
        reader.start()
        eventually(lambda: len(reads(calls, SHARD)) >= 4)
        put(kinesis, 5)
        reader.join()
        assert numbers_of(seen) == dict.fromkeys(KEYS, numbers)


def test_shards_are_listed_where_the_last_page_names_none_or_a_child_of_an_unknown_one(
    client: StreamClient, kinesis: Any
) -> None:
    """Shard 1 may be read to its end before the end of shard 0 names shard 3, its partner."""
    before = Lineage.of(client.list_shards()[0])
    split(kinesis, "s")
    merge_neighbours(kinesis, "s", index=1)
    every = {f"{SHARD[:-1]}{number}" for number in range(5)}

    def found(lineage: Lineage, shard_id: str) -> set[str]:
        iterator = client.shard_iterator(shard_id, TRIM_HORIZON)
        last = client.get_records(shard_id, iterator, 1)
        assert last.page.child_shards
        return {one.id for one in new_shards(client, last, lineage, None)}

    unnamed = Fetched(Page(records=[]), 0, 0)
    assert {one.id for one in new_shards(client, unnamed, before, None)} == every
    assert found(before, SHARD[:-1] + "1") == every
    after = Lineage.of(client.list_shards()[0])
    assert found(after, SHARD[:-1] + "1") == {SHARD[:-1] + "4"}, "no call is needed"


def test_an_idle_shard_is_asked_once_a_second(
    client: StreamClient, kinesis: Any, calls: list[Call]
) -> None:
    put(kinesis, 0)
    watcher = Following(client, TRIM_HORIZON)
    eventually(lambda: len(reads(calls, SHARD)) >= 4)
    watcher.end(kinesis)
    first, second, third, fourth = reads(calls, SHARD)[:4]
    for gap in (second - first, third - second, fourth - third):
        assert gap >= 1000 * TIP_PAUSE - 50


def reads(calls: list[Call], shard: str) -> list[int]:
    """The times of GetRecords calls on a shard."""
    return [one.time_ms for one in calls if (one.operation, one.shard) == ("GetRecords", shard)]
