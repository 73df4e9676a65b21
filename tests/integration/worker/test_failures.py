"""What a worker tells of errors that many records and shards have in common; and whose lines."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis import LogContext
from sparkinesis.lease.table.client import dynamodb_client
from sparkinesis.stream.calls.caller import call_client
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.on_error import Skip
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene, wait_for_look
from tests.journal import PATIENCE, Journaling
from tests.pace import eventually

OWN = "the.users.own"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All that is logged, with its context."""
    context = LogContext()
    caplog.handler.addFilter(context)
    caplog.set_level(logging.DEBUG)
    yield caplog
    caplog.handler.removeFilter(context)


def test_lines_tell_application_worker_and_shard(
    scene: Scene, dynamodb: Any, log: pytest.LogCaptureFixture
) -> None:
    for hash_key in (0, UPPER):
        scene.put(b"%d" % hash_key, hash_key)

    def speak(batch: Any, _: Any) -> None:
        logging.getLogger(OWN).info("processing %s", batch.records[0].shard_id)

    app = scene.application(
        processor=lambda: Journaling(scene.journal, on_records=speak),
        worker_id="w1",
        options={"audit_interval": 0.2},
    )
    worker = scene.run(app)
    scene.journal.wait_for_data(b"0", b"%d" % UPPER)
    dynamodb.delete_item(TableName=scene.stream, Key={"leaseKey": {"S": SECOND}})
    loops = {(name, "-") for name in ("renew", "take", "shards")}
    pools = {("step", shard) for shard in (FIRST, SECOND)}

    def place_of(line: logging.LogRecord) -> tuple[str, str]:
        """Return the loop, or "step" for a pool of steps, and the shard that the line names."""
        name, _, _ = str(line.threadName).removeprefix(f"{scene.stream}-").partition("-")
        return "step" if name in {"process", "fetch"} else name, vars(line)["shard"]

    own_threads = {*pools, *loops}
    table = app.table()
    clients = (
        call_client(app.address()),
        dynamodb_client(table.region, table.endpoint, table.credentials),
    )

    def have_all_told() -> bool:
        for client in clients:
            # botocore prepares the next call, in whichever thread, and logs that.
            client._usual = None
            client._learned.clear()
        return own_threads <= {place_of(line) for line in log.records}

    eventually(have_all_told)
    assert worker.shutdown(PATIENCE)
    own = {(line.getMessage(), vars(line)["shard"]) for line in log.records if line.name == OWN}
    assert own == {(f"processing {shard}", shard) for shard in (FIRST, SECOND)}
    seen = set()
    for line in log.records:
        if (line.threadName or "").startswith(scene.stream):
            told = vars(line)
            # The line of an event names the event's shard, in whichever thread the event occurs.
            assert (told["application"], told["worker"]) == (scene.stream, "w1"), line
            event = told.get("sparkinesis_event")
            if shard := getattr(event, "shard_id", None):
                assert told["shard"] == shard
            else:
                seen.add(place_of(line))
    assert seen == {*own_threads, ("consume", "-")}


def test_a_shutdown_by_signal_is_of_the_worker_too(
    scene: Scene, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = scene.application(worker_id="w1").worker()
    shut_down, done = worker.shutdown, threading.Event()

    def shutdown(timeout: float | None) -> None:
        shut_down(timeout)
        logging.getLogger(OWN).info("shut down")
        done.set()

    monkeypatch.setattr(worker, "shutdown", shutdown)
    with graceful_on_signals(worker.shutdown, worker.log_place):
        signal.raise_signal(signal.SIGTERM)
        assert done.wait(PATIENCE)
    (line,) = [vars(line) for line in log.records if line.name == OWN]
    assert (line["threadName"], line["worker"], line["shard"]) == ("shutdown", "w1", "-")


def test_records_are_counted_also_of_shards_that_are_gone(scene: Scene) -> None:
    def refuse(batch: Any, _: Any) -> None:
        if b"bad" in [record.data for record in batch.records]:
            raise ValueError("bad")

    for data in (b"1", b"bad", b"2"):
        scene.put(data)
    scene.put(b"3", UPPER)
    worker = scene.start(on_records=refuse, on_error=Skip())
    scene.journal.wait_for_data(b"1", b"2", b"3")
    wait_for_look(worker, lambda: worker.records_total() == 3)
    assert {each.shard_id: each.records for each in worker.status()} == {FIRST: 2, SECOND: 1}
    assert worker.shutdown(PATIENCE)
    assert worker.status() == []
    assert worker.records_total() == 3
