"""The first start of an application of many shards: its leases are created several at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis import Application
from sparkinesis.errors import AccessDeniedError, LeaseTableUnavailableError
from sparkinesis.events import Event, LeaseCreated
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import LATEST
from tests import pace
from tests.integration.lease.conftest import (
    ManualTime,
    Scene,
    Stream,
    make_stream,
    syncer_of,
)
from tests.integration.lease.conftest import (
    lease as table_row,
)
from tests.journal import Journal, Journaling

SHARDS = 120


@pytest.fixture
def stream(server: LocalServer) -> Stream:
    return make_stream(server, SHARDS)


@pytest.fixture
def syncer(
    server: LocalServer, table: LeaseTable, stream: Stream, told: list[Event]
) -> Callable[[], ShardSyncer]:
    """Makes the syncer of a worker that starts at the latest record, and retries without a pause.

    It does not give up after a few: one of many threads may be refused again and again.
    """
    retry = Backoff(sleep=lambda _: None)
    return lambda: syncer_of(
        stream.client,
        LeaseTable(table.name, "us-east-1", server.endpoint_url, retry=retry),
        ManualTime(),
        initial=LATEST,
        publish=told.append,
    )


class AtPuts:
    """A fault plan: tells the number of each lease that is put, from 1; the answer is its fault."""

    def __init__(self, tell: Callable[[int], Fault | None]) -> None:
        self._tell, self._count = tell, 0

    def __call__(self, call: Call) -> Fault | None:
        if call.operation != "PutItem":
            return None
        self._count += 1
        return self._tell(self._count)


def created(told: list[Event]) -> Counter[str]:
    return Counter(event.lease for event in told if isinstance(event, LeaseCreated))


def assert_complete(table: LeaseTable, stream: Stream) -> None:
    """Each shard has a lease, and all begin at the same instant."""
    rows = table.leases()
    assert {row.shard_id for row in rows} == {shard.id for shard in stream.shards()}
    assert len({(row.checkpoint, row.timestamp_ms, row.application_ms) for row in rows}) == 1


def test_workers_that_start_together_create_each_lease_once(
    scene: Scene, stream: Stream, syncer: Callable[[], ShardSyncer]
) -> None:
    """None of them writes over what another one wrote: the condition of each write holds."""
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: syncer().sync(), range(3)))
    assert_complete(scene.table, stream)
    assert set(created(scene.told).values()) == {1}
    assert len(created(scene.told)) == SHARDS


def test_a_table_of_few_write_units_gets_all_leases(
    scene: Scene, stream: Stream, syncer: Callable[[], ShardSyncer]
) -> None:
    """It takes the writes of its burst, and then three of five."""
    refused: list[int] = []

    def throttle(put: int) -> Fault | None:
        if put < SHARDS // 2 or put % 5 not in {0, 2}:
            return None
        refused.append(put)
        return Fault.error("ProvisionedThroughputExceededException")

    scene.server.kinesis.faults = AtPuts(throttle)
    syncer().sync()
    assert len(refused) > SHARDS // 4
    assert_complete(scene.table, stream)
    assert len(created(scene.told)) == SHARDS


def test_a_permission_that_is_taken_away_in_between_is_an_error_and_no_loss(
    scene: Scene, stream: Stream, syncer: Callable[[], ShardSyncer]
) -> None:
    denied = Fault.error("AccessDeniedException")
    scene.server.kinesis.faults = AtPuts(lambda put: denied if put > SHARDS // 2 else None)
    with pytest.raises(AccessDeniedError, match="PutItem"):
        syncer().sync()
    scene.server.kinesis.faults = None
    assert len(scene.table.leases()) == SHARDS // 2
    syncer().sync()
    assert_complete(scene.table, stream)


def test_a_worker_that_is_to_end_creates_no_more(
    scene: Scene, stream: Stream, syncer: Callable[[], ShardSyncer]
) -> None:
    stop = threading.Event()
    scene.server.kinesis.faults = AtPuts(lambda put: stop.set() if put == SHARDS // 3 else None)
    syncer().sync(wait=stop.wait)
    there = len(scene.table.leases())
    assert SHARDS // 3 <= there < SHARDS - 16
    syncer().sync(wait=stop.wait)
    assert len(scene.table.leases()) == there + 1
    syncer().sync(wait=threading.Event().wait)
    assert_complete(scene.table, stream)


@pytest.mark.parametrize("are_several", [False, True])
def test_a_worker_that_is_shut_down_ends_before_all_leases_are_created(
    scene: Scene, stream: Stream, *, are_several: bool
) -> None:
    reads: Any = {"streams": [stream.name]} if are_several else {"stream": stream.name}
    application = Application(
        name=f"{stream.name}-{are_several}",
        processor=lambda: Journaling(Journal()),
        region="us-east-1",
        endpoint=scene.server.endpoint_url,
        **reads,
    )
    worker = application.worker()
    scene.server.kinesis.faults = AtPuts(
        lambda put: worker.request_shutdown() if put == SHARDS // 3 else None
    )
    worker.start()
    assert worker.wait(pace.seconds(60))
    # Of several streams, one that is being opened has a thread of its own.
    threads = threading.enumerate
    pace.eventually(lambda: not any(one.name.startswith("create-lease") for one in threads()))
    scene.server.kinesis.faults = None
    assert SHARDS // 3 <= len(application.table().leases()) < SHARDS


def test_only_the_thread_that_leads_makes_its_calls_again(scene: Scene, stream: Stream) -> None:
    given: set[float | None] = set()

    class Noted(LeaseTable):
        def create(self, lease: Lease, retry: Backoff | None = None) -> bool:
            given.add(None if retry is None else retry.give_up_after)
            return super().create(lease, retry)

    noted = Noted(scene.table.name, "us-east-1", scene.table.endpoint)
    syncer_of(stream.client, noted, ManualTime(), initial=LATEST).sync()
    assert given == {None, -1.0}
    scene.server.kinesis.faults = lambda _: Fault.error("ThrottlingException")
    before = len(scene.server.kinesis.calls)
    with pytest.raises(LeaseTableUnavailableError):
        scene.table.create(table_row("new"), Backoff(give_up_after=-1.0))
    assert len(scene.server.kinesis.calls) == before + 1


PROGRAM = """
import sys
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST
from tests.integration.lease.conftest import ManualTime, syncer_of, table_at

endpoint, stream, table = sys.argv[1:]
client = StreamClient(StreamAddress(stream, None, "us-east-1", endpoint))
syncer_of(client, table_at(endpoint, table), ManualTime(), initial=LATEST).sync()
"""


def test_a_start_after_kill_9_creates_the_rest_where_the_first_one_began(
    scene: Scene, stream: Stream, syncer: Callable[[], ShardSyncer]
) -> None:
    arguments = [scene.server.endpoint_url, stream.name, scene.table.name]
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env={**os.environ})
    scene.server.kinesis.faults = AtPuts(
        lambda put: program.send_signal(signal.SIGKILL) if put == SHARDS // 2 else None
    )
    assert program.wait() == -signal.SIGKILL
    scene.server.kinesis.faults = None
    assert 1 <= len(scene.table.leases()) < SHARDS
    syncer().sync()
    rows = [replace(row, made_ms=None) for row in scene.table.leases()]
    assert {row.shard_id for row in rows} == {shard.id for shard in stream.shards()}
    assert len({row.application_ms for row in rows}) == 1
