"""Fleets on a Spark cluster of real processes: executors and drivers are killed, workers scaled."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from examples.flights.events import load_flights, to_events, to_json
from examples.flights.processes import REGION
from examples.flights.producer import Producer
from sparkinesis import Application, WorkerOptions
from sparkinesis.local import LocalServer
from tests import pace
from tests.pace import Deadline
from tests.spark.cluster import HOSTS, Cluster
from tests.spark.fleet_driver import make_processor
from tests.spark.fleet_run import FleetRun, events, processed, start_fleet
from tests.streams import merge_neighbours, split

FAILOVER_TIME = pace.seconds(3.0)
LONG_FAILOVER_TIME = 20.0
"""Where leases are released, not left to expire. Workers look for free ones every 3.3 s."""

Start: TypeAlias = Callable[..., AbstractContextManager[FleetRun]]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


@pytest.fixture
def start(
    cluster: Cluster, py_files: list[Path], server: LocalServer, stream_name: str, tmp_path: Path
) -> Start:
    """Submits a driver of a fleet on the stream; see `start_fleet` for the rest."""
    return functools.partial(
        start_fleet, cluster, py_files, server.endpoint_url, stream_name, tmp_path
    )


class Flights:
    """The demo's events, put in order of time, part by part."""

    def __init__(self, kinesis: Any, stream: str, flights: int, events_per_second: int) -> None:
        self._kinesis = kinesis
        self._pace = events_per_second
        self._stream = stream
        table = to_events(load_flights(flights))
        self._keyed = list(zip(table["tail"].to_pylist(), to_json(table), strict=True))
        self.ids: list[str] = table["id"].to_pylist()
        self.by_tail: dict[str, list[str]] = {}
        for tail, id_ in zip(table["tail"].to_pylist(), self.ids, strict=True):
            self.by_tail.setdefault(tail, []).append(id_)
        self._at = 0

    def put(self, share: float) -> Producer:
        """Begin to put so much of all. Between parts the stream may be resharded."""
        end = min(len(self._keyed), self._at + round(share * len(self._keyed)))
        part = self._keyed[self._at : end]
        self._at = end
        producer = Producer(
            self._kinesis, self._stream, part, self._pace, at_a_time=self._pace // 2
        )
        producer.start()
        producer.allow(len(part))
        return producer

    def first_seen(self, folder: Path) -> dict[str, list[str]]:
        """Each aircraft's events in the order in which they were first processed."""
        tail_of = {id_: tail for tail, ids in self.by_tail.items() for id_ in ids}
        order: dict[str, dict[str, None]] = {}
        for id_ in processed(folder):
            order.setdefault(tail_of[id_], {}).setdefault(id_)
        return {tail: list(ids) for tail, ids in order.items()}


def join(producer: Producer) -> None:
    producer.join()
    assert producer.failure is None
    # What is sent again may come behind what was sent later.
    assert producer.throttled == 0


def kill_executor(cluster: Cluster) -> set[int]:
    """As when its machine goes down: the JVM, and all of its Python processes, at once."""
    executors = cluster.executors()
    folder = max(executors, key=lambda each: len(cluster.python_processes(each)))
    victims = [executors[folder], *cluster.python_processes(folder)]
    for sent in (signal.SIGSTOP, signal.SIGKILL):  # nobody may notice before all are dead
        for pid in victims:
            with suppress(ProcessLookupError):  # a Python process was about to end
                os.kill(pid, sent)
    return set(victims)


def wait_for_workers(run: FleetRun, count: int, folder: Path) -> set[str]:
    """Until so many workers run, have all leases, and have begun to process their shards."""

    def is_so() -> bool:
        running = run.running()
        if len(running) != count:
            return False
        owners = run.owners()
        began = {(e["shard"], e["worker"]) for e in events(folder) if e["event"] == "initialize"}
        return set(owners.values()) == running and set(owners.items()) <= began

    run.wait(is_so, every=0.2)
    return run.running()


@dataclass(frozen=True)
class Size:
    """How much a fleet has to do, and its workers in the course of time."""

    workers: int
    fewer: int
    more: int
    shards: int
    flights: int
    events_per_second: int


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(3, 1, 3, shards=6, flights=1_000, events_per_second=150), id="short"),
        pytest.param(
            Size(4, 2, 6, shards=16, flights=4_800, events_per_second=400),
            id="long",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_fleet_through_a_killed_executor_scaling_and_a_reshard(
    start: Start,
    cluster: Cluster,
    server: LocalServer,
    stream_name: str,
    tmp_path: Path,
    *,
    size: Size,
) -> None:
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=size.shards)
    flights = Flights(kinesis, stream_name, size.flights, size.events_per_second)
    with start(
        workers=size.workers,
        failover_time=FAILOVER_TIME,
    ) as run:
        before = wait_for_workers(run, size.workers, tmp_path)
        producer = flights.put(0.5)
        run.wait(lambda: len(processed(tmp_path)) > 200, every=0.2)

        killed = kill_executor(cluster)
        dead = {worker for worker in before if int(worker.split("-")[-2]) in killed}
        taken_after = run.wait(lambda: not {None, *dead} & set(run.owners().values()))
        replaced_after = taken_after + run.wait(
            lambda: len(run.running() - dead) == size.workers, every=0.2
        )
        join(producer)
        again = wait_for_workers(run, size.workers, tmp_path)

        run.ask(f"scale {size.fewer}")
        scaled = time.monotonic()
        few = wait_for_workers(run, size.fewer, tmp_path)
        scaled_down_after = time.monotonic() - scaled

        split(kinesis, stream_name)
        merge_neighbours(kinesis, stream_name, index=size.shards // 2)
        producer = flights.put(0.375)
        run.ask(f"scale {size.more}")
        scaled_up_after = run.wait(
            lambda: len(set(run.owners().values()) - {None}) == size.more, every=0.2
        )
        many = wait_for_workers(run, size.more, tmp_path)
        join(producer)
        split(kinesis, stream_name, index=size.shards // 4)
        join(flights.put(1.0))
        run.wait(lambda: set(processed(tmp_path)) >= set(flights.ids), every=0.5)

        end = run.ask("shutdown")
        owners = run.owners()
    doubled = len(processed(tmp_path)) - len(flights.ids)
    print(
        f"{len(flights.ids)} events, {doubled} processed again; taken after a kill -9: "
        f"{taken_after:.1f} s, new workers: {replaced_after:.1f} s, scaled down: "
        f"{scaled_down_after:.1f} s, up: {scaled_up_after:.1f} s, shutdown: {end['seconds']:.1f} s"
    )
    assert 0 < len(dead) < size.workers, "Spark has spread the workers"
    assert len(again - before) == len(dead), "as many new workers as had died"
    assert len(many - again) >= size.more - size.fewer
    assert sorted(set(processed(tmp_path))) == sorted(flights.ids)
    assert flights.first_seen(tmp_path) == flights.by_tail
    assert end["graceful"], end["notes"]
    assert end["ended"]
    assert set(owners.values()) == {None}, f"not all leases are released: {owners}, {end['notes']}"
    assert set(end["jobs"]) == {"SUCCEEDED"}
    assert any("Lost worker" in note for note in end["notes"])
    stopped = {e["worker"] for e in events(tmp_path) if e["event"] == "shutdown_requested"}
    assert again - few <= stopped, "leases are released, not left to expire"


def test_workers_of_a_decommissioned_executor_and_of_a_killed_driver_release_their_leases(
    start: Start, cluster: Cluster, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    """They checkpoint only when they are shut down: whatever they leave behind is not repeated."""
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=4)
    flights = Flights(kinesis, stream_name, 400, events_per_second=150)
    with start(
        workers=2,
        failover_time=LONG_FAILOVER_TIME,
        checkpoints="shutdown",
        settings={"spark.decommission.enabled": "true"},
    ) as run:
        before = wait_for_workers(run, 2, tmp_path)
        join(flights.put(0.3))
        executors = cluster.executors()
        folder = max(executors, key=lambda each: len(cluster.python_processes(each)))
        os.kill(executors[folder], signal.SIGPWR)
        run.wait(lambda: run.running() - before, every=0.2)
        run.wait(lambda: folder not in cluster.executors(), every=0.2)
        after = wait_for_workers(run, 2, tmp_path)
        status = run.ask("status")

        # Nobody else is there to take a lease that expires: leases have to be released.
        producer = flights.put(0.4)
        run.wait(lambda: len(processed(tmp_path)) > 0.4 * len(flights.ids), every=0.2)
        # Read before the kill: workers may be told while it is still waited for.
        killed, deadline = time.monotonic(), Deadline(60)
        run.kill_driver()
        while set(run.owners().values()) != {None}:
            assert not deadline.has_passed(), run.owners()
            time.sleep(0.05)
        released_after = time.monotonic() - killed
        while cluster.python_processes():
            assert not deadline.has_passed(), cluster.python_processes()
            time.sleep(0.05)
        gone_after = time.monotonic() - killed
        join(producer)
    print(f"kill -9 of the driver: released after {released_after:.1f} s, gone {gone_after:.1f} s")
    assert len(after - before) == 1
    assert any("decommissioned" in note for note in status["notes"])
    assert set(status["jobs"]) == {"RUNNING"}
    stopped = [e for e in events(tmp_path) if e["event"] == "shutdown_requested"]
    last_stopped = [e for e in stopped if e["at"] > killed]
    assert len(last_stopped) == 4, "each shard's processor had the time to checkpoint"
    join(flights.put(1.0))
    resume(server, stream_name, tmp_path, lambda: set(processed(tmp_path)) >= set(flights.ids))
    assert sorted(processed(tmp_path)) == sorted(flights.ids), "none again, none left out"
    assert flights.first_seen(tmp_path) == flights.by_tail


def resume(server: LocalServer, stream: str, folder: Path, is_enough: Callable[[], object]) -> None:
    """Let a worker in this process do the rest of a fleet's work."""
    application = Application(
        stream,
        stream,
        make_processor(str(folder), "shutdown"),
        region=REGION,
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(idle_time=0.3),
    )
    worker, deadline = application.worker().start(), Deadline(60)
    while not is_enough():
        assert not deadline.has_passed()
        time.sleep(0.2)
    assert worker.shutdown()


@pytest.mark.long
def test_a_speculative_copy_stands_by_and_a_shipped_module_is_found(
    start: Start, cluster: Cluster, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    with start(
        workers=1,
        failover_time=FAILOVER_TIME,
        checkpoints="imported",
        settings={
            "spark.speculation": "true",
            "spark.speculation.task.duration.threshold": "1s",
            "spark.speculation.interval": "500ms",
        },
    ) as run:

        def states() -> list[str]:
            return sorted(run.ask("status")["workers"].values())

        run.wait(lambda: states() == ["running", "standby"], every=0.2)
        status = run.ask("status")
        (worker,) = (w for w, state in status["workers"].items() if state == "running")
        run.wait(lambda: run.all_owned_by({worker}))
        end = run.ask("shutdown")
    assert end["graceful"]
    assert set(end["jobs"]) == {"SUCCEEDED"}
    written = events(tmp_path)
    assert {e["worker"] for e in written} == {worker}
    assert {Path(e["executor"]).parents[1].name for e in written} <= set(HOSTS)
    assert all(Path(e["module"]).name == "fleet_processor.py" for e in written)
    assert not any(Path(e["module"]).is_relative_to(Path(__file__).parent) for e in written)
