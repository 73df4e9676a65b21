"""The health and the metrics of a fleet on its driver: what is concluded, and real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkinesis.errors import OptionError
from sparkinesis.fleet.fleet import Fleet
from sparkinesis.metrics.catalogue import FLEET_RUNNING, FLEET_WAITING, FLEET_WANTED
from sparkinesis.metrics.health import liveness
from sparkinesis.metrics.tally import DEPARTED, GatheredSeries, Series
from sparkinesis.status import FleetState, FleetStatus, WorkerState, WorkerStatus
from sparkinesis.worker.supervision.control_messages import Ended, Report
from sparkinesis.worker.supervision.supervisor import gauges_of, why_not_live, why_not_ready
from tests.answering import get
from tests.pace import eventually
from tests.unit.fleet.idle_spark import IdleSpark, hello, make, tell

COUNT = Series("records.processed", ("s",), 3.0)
GAUGE = Series("lag", ("s", "shard-1"), 7.0)


def worker(name: str, state: WorkerState = WorkerState.RUNNING, **given: Any) -> WorkerStatus:
    return WorkerStatus(name, state, "host", 1, 0, 0, 0.0, None, 0.0, **given)


def test_a_loop_of_a_worker_that_stands_still_is_told_with_the_worker() -> None:
    workers = [
        worker("a"),
        worker("b", not_live=("the loop has died",)),
        worker("c", WorkerState.LOST, not_live=("the loop has died",)),
    ]
    assert why_not_live(workers) == ["worker b: the loop has died"]


@pytest.mark.parametrize(
    ("workers", "why"),
    [
        ([], ["no worker runs"]),
        ([worker("a", WorkerState.STARTING)], ["no worker runs"]),
        ([worker("a", not_ready=("no table",))], ["worker a: no table"]),
        ([worker("a", not_ready=("no table",)), worker("b")], []),
        ([worker("a", WorkerState.LOST), worker("b", not_ready=("no",))], ["worker b: no"]),
    ],
)
def test_a_fleet_is_ready_while_one_worker_sees_the_table(
    workers: list[WorkerStatus], why: list[str]
) -> None:
    status = FleetStatus("app", "s", FleetState.RUNNING, 2, tuple(workers))
    assert why_not_ready(status) == why


def test_a_fleet_that_shuts_down_is_not_ready() -> None:
    status = FleetStatus("app", "s", FleetState.SHUTTING_DOWN, 0, (worker("a"),))
    assert why_not_ready(status) == ["the workers are shutting down"]


def test_gauges_follow_the_status() -> None:
    states = [
        WorkerState.RUNNING,
        WorkerState.RUNNING,
        WorkerState.STARTING,
        WorkerState.STANDBY,
        WorkerState.LEAVING,
        WorkerState.LOST,
    ]
    workers = tuple(worker(str(n), state) for n, state in enumerate(states))
    status = FleetStatus("app", "s", FleetState.RUNNING, 7, workers, waiting=3)
    found = {sample.metric: sample.value for sample in gauges_of(status)}
    assert found == {FLEET_WANTED: 7, FLEET_RUNNING: 2, FLEET_WAITING: 4}


def test_a_worker_that_ended_keeps_its_counters_and_not_its_gauges() -> None:
    series = GatheredSeries().add("a", (COUNT, GAUGE)).add("b", (COUNT, GAUGE)).add("a", None)
    assert series.retain({"b"}).groups("app", {"b"}) == [
        ({"application": "app", "worker": "a"}, (COUNT,)),
        ({"application": "app", "worker": "b"}, (COUNT, GAUGE)),
    ]


def test_the_workers_that_departed_longest_ago_are_forgotten() -> None:
    series = GatheredSeries()
    for number in range(DEPARTED + 3):
        series = series.add(str(number), (COUNT,)).retain({"0"})
    assert len(series.workers) == DEPARTED + 1
    assert {"0", "3", str(DEPARTED + 2)} <= series.workers.keys()
    assert not {"1", "2"} & series.workers.keys()


# --- by HTTP


HTTP = "127.0.0.1:0"


@pytest.fixture
def fleet(spark: Any) -> Iterator[Fleet]:
    made = make(spark, http=HTTP)
    yield made
    made.shutdown(0)


def ask(fleet: Fleet, path: str) -> Any:
    status, body = get(f"{fleet.http_url}{path}")
    assert status in {200, 503}
    return json.loads(body)


def scraped(fleet: Fleet, name: str) -> dict[str, float]:
    """The values of a metric by worker; "" for that of the fleet itself."""
    families = text_string_to_metric_families(get(f"{fleet.http_url}/metrics")[1])
    return {
        sample.labels.get("worker", ""): sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"sparkinesis_{name}" and sample.labels["application"] == "app"
    }


PROCESSED = "records_processed_total"


def test_the_driver_tells_the_health_of_all_workers(fleet: Fleet) -> None:
    assert ask(fleet, "/livez") == {"live": True, "reasons": []}
    assert ask(fleet, "/readyz") == {"ready": False, "reasons": ["no worker runs"]}
    tell(fleet, hello(), Report((), 0, True, not_ready=("no table",)))
    eventually(lambda: ask(fleet, "/readyz")["reasons"] == ["worker w: no table"])
    assert ask(fleet, "/livez")["live"]
    tell(fleet, Report((), 0, True, not_live=("the loop has died",)))
    eventually(lambda: ask(fleet, "/livez")["reasons"] == ["worker w: the loop has died"])
    assert ask(fleet, "/readyz") == {"ready": True, "reasons": []}
    (told,) = ask(fleet, "/status")["workers"]
    assert (told["worker_id"], told["not_live"]) == ("w", ["the loop has died"])


def test_the_driver_tells_the_metrics_of_all_workers_also_of_those_that_ended(fleet: Fleet) -> None:
    tell(fleet, hello(), Report((), 3, True, series=(COUNT, GAUGE)), Report((), 5, True))
    eventually(lambda: scraped(fleet, PROCESSED) == {"w": 3.0})
    last = Report((), 9, True, series=(Series("records.processed", ("s",), 9.0),))
    tell(fleet, last, Ended(was_graceful=True))
    eventually(lambda: "w" not in {one.worker_id for one in fleet.status().workers})
    assert scraped(fleet, PROCESSED) == {"w": 9.0}


def test_a_fleet_whose_thread_stands_still_is_not_live(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(liveness, "PATIENCE", 0.2)
    monkeypatch.setattr(liveness, "_MARGIN", 0.2)
    monkeypatch.setattr(liveness, "CONFIRMED", 0.5)
    monkeypatch.setattr(fleet._supervisor, "_handle", lambda *_: go_on.wait())
    tell(fleet, hello())
    eventually(lambda: not ask(fleet, "/livez")["live"])
    (why,) = ask(fleet, "/livez")["reasons"]
    assert "the workers' supervisor stands still" in why
    go_on.set()
    eventually(lambda: ask(fleet, "/livez")["live"])


def test_the_port_is_taken_before_any_job_and_freed_at_the_end(spark: Any) -> None:
    fleet = make(spark, http=HTTP)
    at = urlsplit(str(fleet.http_url)).netloc
    with pytest.raises(OptionError, match=f"http is '{at}', and this process cannot listen"):
        make(other := IdleSpark(), http=at)
    assert not other.jobs
    fleet.shutdown(0)
    assert fleet.http_url is None
    again = make(spark, http=at)
    again.shutdown(0)
