"""Fleets on a Spark cluster of real processes: executors and drivers are killed, workers scaled."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from examples.flights.events import load_flights, to_events, to_json
from examples.flights.processes import REGION
from examples.flights.producer import Producer
from sparkinesis.local import LocalServer
from tests import pace
from tests.pace import Deadline
from tests.spark.cluster import HOSTS, Cluster
from tests.spark.fleet_run import FleetRun, events, processed, start_fleet
from tests.streams import merge_neighbours, split

FAILOVER_TIME = pace.seconds(3.0)
LONG_FAILOVER_TIME = 20.0
"""Where leases are released, not left to expire. Workers look for free ones every 3.3 s."""
EVENTS_PER_SECOND = 400

Start: TypeAlias = Callable[..., AbstractContextManager[FleetRun]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two executors with room for four workers each."""
    with Cluster(tmp_path_factory.mktemp("fleet-cluster"), cores=4) as running:
        yield running


@pytest.fixture
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

    def __init__(self, kinesis: Any, stream: str, flights: int) -> None:
        self._kinesis = kinesis
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
        producer = Producer(self._kinesis, self._stream, part, EVENTS_PER_SECOND)
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
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)  # nobody may notice before all are dead
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return set(victims)


def wait_for_workers(run: FleetRun, count: int) -> set[str]:
    """Until so many workers run, and have all leases."""

    def is_so() -> bool:
        running = run.running()
        return len(running) == count and run.all_owned_by(running)

    run.wait(is_so, every=0.2)
    return run.running()


def test_a_fleet_through_a_killed_executor_scaling_and_a_reshard(
    start: Start, cluster: Cluster, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=16)
    flights = Flights(kinesis, stream_name, 4_800)
    with start(
        workers=4,
        failover_time=FAILOVER_TIME,
    ) as run:
        before = wait_for_workers(run, 4)
        producer = flights.put(0.5)
        run.wait(lambda: len(processed(tmp_path)) > 200, every=0.2)

        killed = kill_executor(cluster)
        dead = {worker for worker in before if int(worker.split("-")[-2]) in killed}
        taken_after = run.wait(lambda: not {None, *dead} & set(run.owners().values()))
        replaced_after = taken_after + run.wait(lambda: len(run.running() - dead) == 4, every=0.2)
        again = wait_for_workers(run, 4)
        join(producer)

        run.ask("scale 2")
        scaled = time.monotonic()
        two = wait_for_workers(run, 2)
        scaled_down_after = time.monotonic() - scaled

        split(kinesis, stream_name)
        merge_neighbours(kinesis, stream_name, index=8)
        producer = flights.put(0.375)
        run.ask("scale 6")
        scaled_up_after = run.wait(lambda: len(set(run.owners().values()) - {None}) == 6)
        six = wait_for_workers(run, 6)
        join(producer)
        split(kinesis, stream_name, index=4)
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
    assert 0 < len(dead) < 4, "Spark has spread the workers"
    assert len(again - before) == len(dead), "as many new workers as had died"
    assert len(six - again) >= 4
    assert sorted(set(processed(tmp_path))) == sorted(flights.ids)
    assert flights.first_seen(tmp_path) == flights.by_tail
    assert set(owners.values()) == {None}, "all leases are released"
    assert end["graceful"]
    assert end["ended"]
    assert set(end["jobs"]) == {"SUCCEEDED"}
    assert any("Lost worker" in note for note in end["notes"])
    stopped = {e["worker"] for e in events(tmp_path) if e["event"] == "shutdown_requested"}
    assert (again - two) & stopped, "leases are released, not left to expire"


def test_workers_of_a_killed_driver_checkpoint_release_and_exit(
    start: Start, cluster: Cluster, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=4)
    flights = Flights(kinesis, stream_name, 600)

    # Nobody else is there to take a lease that expires: leases have to be released.
    start_again = functools.partial(
        start, workers=2, failover_time=LONG_FAILOVER_TIME, checkpoints="shutdown"
    )
    with start_again() as run:
        wait_for_workers(run, 2)
        producer = flights.put(0.5)
        run.wait(lambda: len(processed(tmp_path)) > 100, every=0.2)
        run.kill_driver()
        killed, deadline = time.monotonic(), Deadline(60)
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
    stopped = [e for e in events(tmp_path) if e["event"] == "shutdown_requested"]
    assert len(stopped) == 4, "each shard's processor had the time to checkpoint"
    with start_again() as run:
        join(flights.put(1.0))
        run.wait(lambda: set(processed(tmp_path)) >= set(flights.ids), every=0.5)
        assert run.ask("shutdown")["graceful"]
    assert sorted(processed(tmp_path)) == sorted(flights.ids), "none again, none left out"
    assert flights.first_seen(tmp_path) == flights.by_tail


def test_a_worker_leaves_an_executor_that_is_decommissioned(
    start: Start, cluster: Cluster, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=4)
    flights = Flights(kinesis, stream_name, 300)
    with start(
        workers=4,
        failover_time=LONG_FAILOVER_TIME,
        checkpoints="shutdown",
        settings={"spark.decommission.enabled": "true"},
    ) as run:
        before = wait_for_workers(run, 4)
        join(flights.put(0.5))
        executors = cluster.executors()
        folder = max(executors, key=lambda each: len(cluster.python_processes(each)))
        os.kill(executors[folder], signal.SIGPWR)
        run.wait(lambda: run.running() - before, every=0.2)
        run.wait(lambda: folder not in cluster.executors(), every=0.2)
        after = wait_for_workers(run, 4)
        join(flights.put(1.0))
        run.wait(lambda: set(processed(tmp_path)) >= set(flights.ids), every=0.5)
        end = run.ask("shutdown")
    assert len(after - before) >= 1
    assert sorted(processed(tmp_path)) == sorted(flights.ids), "none again, none left out"
    assert any("decommissioned" in note for note in end["notes"])
    assert set(end["jobs"]) == {"SUCCEEDED"}


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
