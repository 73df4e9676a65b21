"""`sparkinesis exporter`, a process beside a worker that runs, and beside one that is gone."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkinesis.lease.table.provisioning import creation
from sparkinesis.local import LocalServer
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.answering import get
from tests.command import COMMAND, place_of
from tests.integration.worker.scene import FIRST, SECOND, Scene, checkpoint
from tests.kcl import put_rows, rows_of
from tests.pace import eventually


class Running:
    """An exporter that runs in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "exporter", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("Serving http://127.0.0.1:"), line
        self.url = line.split()[1].removesuffix("/metrics")

    def read(self, path: str) -> tuple[int, str]:
        return get(f"{self.url}{path}")

    def values(self, name: str) -> dict[str, tuple[dict[str, str], float]]:
        """The labels and the value of each series of a metric, by shard."""
        return {
            sample.labels.get("shard", ""): (sample.labels, sample.value)
            for family in text_string_to_metric_families(self.read("/metrics")[1])
            for sample in family.samples
            if sample.name == f"sparkinesis_{name}"
        }

    def value(self, name: str, shard: str) -> float | None:
        found = self.values(name).get(shard)
        return None if found is None else found[1]


@pytest.fixture
def export(server: LocalServer, stream: str) -> Iterator[Callable[..., Running]]:
    """Starts exporters; they are ended when the test is over."""
    started: list[Running] = []

    def run() -> Running:
        given = (stream, "--stream", stream, "--http", "127.0.0.1:0", "--interval", "1")
        started.append(Running(*given, *place_of(server)))
        return started[-1]

    yield run
    for one in started:
        one.process.kill()
        one.process.communicate()


def owners(exporter: Running) -> dict[str, str]:
    found = exporter.values("shard_owner")
    return {shard: labels["owner"] for shard, (labels, _) in found.items()}


def test_lag_owner_and_age_are_told_beside_a_worker_and_after_its_death(
    scene: Scene, export: Callable[..., Running]
) -> None:
    worker = scene.start(on_records=checkpoint)
    scene.put(b"one")
    scene.put(b"two")
    scene.journal.wait_for_data(b"one", b"two")
    eventually(lambda: len(worker.status()) == 2)
    exporter = export()
    owner = worker._settings.worker_id
    eventually(lambda: owners(exporter) == {FIRST: owner, SECOND: owner})
    eventually(lambda: exporter.value("shard_lag_seconds", FIRST) == 0)
    labels, _ = exporter.values("shard_lag_seconds")[FIRST]
    assert labels == {"application": scene.stream, "stream": scene.stream, "shard": FIRST}
    assert exporter.value("shard_unread_seconds", FIRST) == 0
    assert exporter.read("/livez") == (200, '{"live":true,"reasons":[]}\n')
    assert exporter.read("/readyz") == (200, '{"ready":true,"reasons":[]}\n')
    assert len(json.loads(exporter.read("/status")[1])["shards"]) == 2

    worker.shutdown(10)
    scene.put(b"three")
    scene.put(b"four")
    eventually(lambda: exporter.values("shard_owner") == {})
    eventually(lambda: (exporter.value("shard_unread_seconds", FIRST) or 0) > 2)
    eventually(lambda: max(value for _, value in exporter.values("shard_lag_seconds").values()) > 2)
    age = "shard_checkpoint_age_seconds"
    eventually(lambda: any(value > 1 for _, value in exporter.values(age).values()))
    exporter.process.send_signal(signal.SIGTERM)
    assert exporter.process.wait(60) == 0


def test_it_begins_without_a_table_and_goes_on_through_one_that_is_deleted_and_restored(
    scene: Scene, dynamodb: Any, export: Callable[..., Running]
) -> None:
    exporter = export()
    eventually(lambda: "There is no lease table" in exporter.read("/readyz")[1])
    scene.start().shutdown(10)
    eventually(lambda: exporter.read("/readyz")[0] == 200)
    rows = list(rows_of(dynamodb, scene.stream).values())
    dynamodb.delete_table(TableName=scene.stream)
    eventually(lambda: exporter.read("/readyz")[0] == 503)
    assert "There is no lease table" in exporter.read("/readyz")[1]
    assert exporter.read("/livez")[0] == 200
    eventually(lambda: (exporter.value("table_look_age_seconds", "") or 0) > 2)
    assert len(exporter.values("shard_unread_seconds")) == 2, "the last scan is kept"
    dynamodb.create_table(**creation(scene.stream, LeaseTableOptions()))
    put_rows(dynamodb, scene.stream, rows)
    eventually(lambda: exporter.read("/readyz")[0] == 200)
    eventually(lambda: (exporter.value("table_look_age_seconds", "") or 99) < 2)
