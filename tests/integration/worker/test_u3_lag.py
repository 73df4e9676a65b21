"""U3: what is told of lags, of standstills, and of records that have expired unread."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Fault
from sparkinesis.metrics.catalogue import APPLICATION_LAG, LAG, PAGE_LAG, STANDING_AGE
from sparkinesis.monitor.doctor import application_checks, judge
from sparkinesis.monitor.doctor.judge import State
from sparkinesis.monitor.lags import Lag, lag_of
from sparkinesis.status import ShardStatus
from sparkinesis.stream.address import StreamAddress
from sparkinesis.worker.lifecycle.shard import shard_view
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.reporting.gauges import samples_of
from tests import pace
from tests.command import call, objects, place_of
from tests.integration.worker.scene import (
    FIRST,
    SECOND,
    Gate,
    Scene,
    checkpoint,
    told,
    wait_for_look,
)
from tests.integration.worker.test_expired import application_on
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put, records_of
from tests.timed_stream import HOUR, SHARDS, TimedStream

WARNED = 0.4
"""Seconds after which these workers warn."""


def shard(worker: Worker, name: str = FIRST) -> ShardStatus:
    (found,) = (one for one in worker.status() if one.shard_id == name)
    return found


def held_for(worker: Worker, seconds: float) -> Callable[[], bool]:
    """The first shard has been at the same records for so long; False before it is read."""
    return lambda: any(
        one.shard_id == FIRST and (one.standing_for or 0.0) >= seconds for one in worker.status()
    )


def fail(*_: object) -> None:
    raise ValueError("no database")


class Stuck(Gate):
    """Waits at the records of the first shard only."""

    def __call__(self, *given: Any) -> None:
        if given[0].records[0].shard_id == FIRST:
            super().__call__()


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_the_lag_of_a_call_that_hangs_is_the_age_of_its_records(
    scene: Scene, retrieval: str, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck()
    options = {"standstill_warning": WARNED, "retrieval": retrieval}
    worker = scene.start(options, on_records=stuck)
    scene.put(b"held")
    scene.put(b"done", 2**127)
    stuck.wait_for_work()
    scene.journal.wait_for_data(b"done")
    wait_for_look(worker, held_for(worker, 6 * WARNED))
    seen = shard(worker)
    assert seen.processing_for is not None
    assert seen.standing_for is not None
    assert seen.millis_behind_latest is not None
    assert seen.millis_behind_latest >= 1000 * seen.standing_for
    assert seen.page_millis_behind_latest == 0, "the service's own figure"
    other = shard(worker, SECOND)
    assert (other.millis_behind_latest, other.standing_for) == (0, None)
    place = scene.stream, FIRST
    gauges = {(one.metric, one.labels): one.value for one in samples_of(worker._snapshot(None))}
    assert gauges[LAG, place] == gauges[APPLICATION_LAG, ()] >= 6 * WARNED
    assert gauges[PAGE_LAG, place] == 0
    assert gauges[STANDING_AGE, place] >= 6 * WARNED
    wait_for_look(worker, lambda: bool(told(caplog, "has stood still")))
    warnings = told(caplog, "has stood still")
    assert 1 <= len(warnings) <= 4, "each is told after twice the time of the one before"
    assert all(f"shard {FIRST}" in line for line in warnings)
    assert "process_records has not returned from record" in warnings[0]
    stuck.go_on.set()
    wait_for_look(worker, lambda: bool(told(caplog, "goes on after")))
    assert f"shard {FIRST}" in told(caplog, "goes on after")[0]
    wait_for_look(worker, lambda: shard(worker).millis_behind_latest == 0)
    assert shard(worker).standing_for is None


def test_a_call_that_fails_again_and_again_stands_still(scene: Scene) -> None:
    options = {"standstill_warning": WARNED, "task_backoff": 0.05}
    worker = scene.start(options, on_records=fail)
    scene.put(b"bad")
    wait_for_look(worker, held_for(worker, 3 * WARNED))
    seen = shard(worker)
    assert seen.standing_for is not None
    assert seen.millis_behind_latest is not None
    assert seen.millis_behind_latest >= 1000 * seen.standing_for
    failing = "process_records fails again and again on record"
    # The first warning may come while the first call of a busy machine has not returned yet.
    wait_for_look(
        worker, lambda: any(failing in line for line in told(scene.caplog, "has stood still"))
    )


def test_one_record_of_several_at_a_time_holds_its_shard_up(scene: Scene) -> None:
    go_on = threading.Event()

    def process(record: Any) -> None:
        if record.data == b"held":
            assert go_on.wait(PATIENCE)

    options = {"standstill_warning": WARNED, "concurrency": 4}
    worker = scene.run(scene.application(options, processor=process))
    scene.put(b"held", key="a")
    for n in range(8):
        scene.put(b"done", key=f"k{n}")
    wait_for_look(worker, lambda: worker.records_total() == 8)
    wait_for_look(worker, held_for(worker, 3 * WARNED))
    seen = shard(worker)
    assert seen.standing_for is not None
    assert seen.millis_behind_latest is not None
    assert seen.millis_behind_latest >= 1000 * seen.standing_for
    wait_for_look(worker, lambda: bool(told(scene.caplog, "has stood still")))
    assert "process_record has not returned from record" in told(scene.caplog, "has stood still")[0]
    go_on.set()
    wait_for_look(worker, lambda: shard(worker).millis_behind_latest == 0)
    assert shard(worker).standing_for is None


def test_a_processor_that_does_not_begin_is_told_too(scene: Scene) -> None:
    gate = Gate()
    worker = scene.start({"standstill_warning": WARNED}, on_initialize=gate)
    gate.wait_for_work()
    wait_for_look(worker, lambda: bool(told(scene.caplog, "has stood still")))
    assert "the task 'initialize' has not ended" in told(scene.caplog, "has stood still")[0]
    gate.go_on.set()


def test_a_shard_that_cannot_be_read_is_told_too(scene: Scene) -> None:
    scene.faults(Fault("AccessDeniedException"), operation="GetRecords", shard=FIRST)
    scene.start({"standstill_warning": WARNED, "task_backoff": 0.05})
    pace.eventually(lambda: told(scene.caplog, "has stood still"))
    (line, *_) = told(scene.caplog, "has stood still")
    assert f"shard {FIRST}" in line
    assert "the task 'process' fails again and again" in line
    scene.faults(None)
    pace.eventually(lambda: told(scene.caplog, "goes on after"))


def test_the_doctor_names_the_shard_that_a_worker_cannot_get_on_with(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_checks, "STANDING_AFTER", WARNED)
    monkeypatch.setattr(shard_view, "NAMED_AFTER", WARNED)
    stuck = Stuck()
    worker = scene.start({"http": "127.0.0.1:0"}, on_records=stuck)
    pace.eventually(lambda: len(worker.status()) == 2)
    url = worker.http_url
    assert url is not None
    asked = ("doctor", scene.stream, "--stream", scene.stream, *place_of(scene.server), "--json")

    def told(state: str, address: str) -> list[str]:
        found = [json.loads(line) for line in call(*asked, "--worker", address).stdout.splitlines()]
        return [
            one["what"]
            for one in found
            if one["check"].startswith("worker ") and one["state"] == state
        ]

    assert len(told("ok", url)) == 1
    scene.put(b"held")
    stuck.wait_for_work()
    wait_for_look(worker, held_for(worker, 2 * WARNED))
    found = told("problem", url.partition("://")[2])
    stuck.go_on.set()
    (what,) = found
    assert what.startswith(f"{FIRST} stands still for ")
    assert "process_records has not returned from record" in what
    assert worker.shutdown(PATIENCE)
    (gone,) = told("problem", url)
    assert "does not tell a worker's state" in gone
    (wrong,) = told("problem", "file:///etc/hostname")
    assert "is no address of a worker" in wrong


def test_the_doctor_looks_twice_at_a_checkpoint_that_is_late(scene: Scene) -> None:
    """With a worker that checkpoints nothing; a second look is enough for one that does."""
    scene.start()
    scene.put(b"done")
    scene.journal.wait_for_data(b"done")
    table, waited = scene.table, list[float]()
    address = StreamAddress(scene.stream, None, "us-east-1", scene.server.endpoint_url)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judge, "LATE_MS", 1)
        (still,) = application_checks.progress_checks(table, [address], waited.append)
        assert still.state is State.NOTE
        assert FIRST in still.what
        assert SECOND not in still.what

        def checkpoint(_: float) -> None:
            row = scene.row()
            at = ExtendedSequenceNumber(scene.journal.records()[0].sequence_number)
            table.write(requests.checkpoint(row, at))

        (well,) = application_checks.progress_checks(table, [address], checkpoint)
    assert len(waited) == 1
    assert well.state is State.OK
    assert list(application_checks.progress_checks(table, [address], waited.append)) == [well]
    assert len(waited) == 1, "nothing is late"


@pytest.fixture
def read(one: TimedStream, start: Callable[[Application], Worker]) -> Callable[[bytes], Lease]:
    """Has a worker process and checkpoint a record; returns the lease once it is released."""

    def read(data: bytes) -> Lease:
        journal = Journal()
        processor = lambda: Journaling(journal, checkpoint)  # noqa: E731
        worker = start(application_on(one, processor))
        journal.wait_for_data(data)
        assert worker.shutdown(PATIENCE)
        row = one.table.get(SHARDS[0])
        assert row is not None
        return row

    return read


def behind(one: TimedStream, row: Lease) -> Lag:
    return lag_of(one.client, row)


def test_records_that_expired_unread_are_told_and_how_far(
    one: TimedStream, read: Callable[[bytes], Lease], timed: LocalServer
) -> None:
    """The first record that is left is young: its age is not the lag."""
    put(one.kinesis, one.name, [b"done"], "k")
    row = read(b"done")
    put(one.kinesis, one.name, [b"lost"], "k")
    one.clock.advance(30 * HOUR)
    put(one.kinesis, one.name, [b"kept"], "k")
    one.clock.advance(4_400)
    lag = behind(one, row)
    assert lag.why == "expired"
    assert lag.millis_behind_latest is not None
    assert lag.millis_behind_latest >= 30 * HOUR
    assert "were removed before they were read" in lag.lost
    assert "the first one left arrived 2026-" in lag.lost
    options = ("--stream", one.name, "--region", "us-east-1", *place_of(timed)[-2:])
    (found,) = objects(call("leases", one.name, *options, "--watch-for", "0", "--json"))
    assert found["lag_unknown_because"] == "expired"
    assert found["lost_unread"] == lag.lost
    done = call("doctor", one.name, *options, "--json")
    (problem,) = (each for each in objects(done, 1) if each["check"] == "lost records")
    assert problem["state"] == "problem"
    assert lag.lost in problem["what"]
    shown = call("top", one.name, *options, "--once")
    assert "30.0 h" in shown.stdout
    assert lag.lost in " ".join(shown.stdout.split())


def test_a_quiet_shard_has_lost_nothing(
    one: TimedStream, start: Callable[[Application], Worker], read: Callable[[bytes], Lease]
) -> None:
    put(one.kinesis, one.name, [b"done"], "k")
    row = read(b"done")
    assert behind(one, row) == Lag(0)
    one.clock.advance(23 * HOUR)
    put(one.kinesis, one.name, [b"next"], "k")
    one.clock.advance(1_500)
    assert behind(one, row) == Lag(1_500)


def test_a_row_without_times_does_not_tell_of_a_loss(one: TimedStream) -> None:
    """As of a KCL: the shard may have been quiet for as long as the checkpoint is old."""
    one.shard_syncer().sync()
    put(one.kinesis, one.name, [b"done"], "k")
    (done,) = records_of(one.kinesis, one.name, SHARDS[0])
    one.checkpoint(0, ExtendedSequenceNumber(done["SequenceNumber"]))
    one.clock.advance(30 * HOUR)
    put(one.kinesis, one.name, [b"next"], "k")
    one.clock.advance(4_400)
    row: Any = one.table.get(SHARDS[0])
    assert behind(one, row) == Lag(4_400)


def test_the_lag_is_the_age_of_the_first_record_behind_the_checkpoint(one: TimedStream) -> None:
    one.shard_syncer().sync()
    put(one.kinesis, one.name, [b"done"], "k")
    (done,) = records_of(one.kinesis, one.name, SHARDS[0])
    one.checkpoint(0, ExtendedSequenceNumber(done["SequenceNumber"]))
    row: Any = one.table.get(SHARDS[0])
    for _ in range(3):
        one.clock.advance(1_000)
        put(one.kinesis, one.name, [b"next"], "k")
    lag = behind(one, row).millis_behind_latest
    assert lag is not None
    assert lag >= 2_000
