"""The health of a real worker, asked over HTTP, while its loops and its services fail."""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkinesis.errors import StreamNotFoundError
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault
from sparkinesis.stream.fan_out.current_subscription import SocketWatch
from sparkinesis.worker.lifecycle.consumer_loop import ConsumerLoop
from sparkinesis.worker.lifecycle.worker import Worker
from tests.answering import get
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import FIRST, SECOND, Gate, Scene, checkpoint, told
from tests.pace import Deadline, eventually
from tests.relay import Relay, relaying
from tests.streams import create_when_permitted

HTTP = {"http": "127.0.0.1:0"}
LONGEST = 15.0
"""Seconds in which a loop that stands still must be told."""


def ask(worker: Worker, path: str) -> tuple[int, str]:
    return get(f"{worker.http_url}{path}")


def why_not(worker: Worker, path: str) -> list[str]:
    """The reasons of a check; the status code must say the same."""
    status, body = ask(worker, path)
    found = json.loads(body)
    reasons: list[str] = found.pop("reasons")
    assert found == {{"/livez": "live", "/readyz": "ready"}[path]: not reasons}
    assert status == (503 if reasons else 200)
    return reasons


def live(worker: Worker) -> list[str]:
    return why_not(worker, "/livez")


def ready(worker: Worker) -> list[str]:
    return why_not(worker, "/readyz")


def healthy(scene: Scene, options: dict[str, Any] = HTTP, **given: Any) -> Worker:
    """A worker that reads both shards, live and ready."""
    worker = scene.start(options, **given)
    eventually(lambda: ready(worker) == [] and len(worker.status()) == 2)
    assert live(worker) == []
    return worker


def stays_live_until(worker: Worker, condition: Callable[[], object]) -> None:
    deadline = Deadline(120.0)
    while not condition():
        assert live(worker) == []
        assert not deadline.has_passed()
        time.sleep(0.05)
    assert live(worker) == []


@pytest.fixture
def relay(server: LocalServer) -> Iterator[Relay]:
    with relaying(server.endpoint_url) as running:
        yield running


def test_a_worker_is_live_ready_and_tells_what_it_processed(scene: Scene) -> None:
    worker = scene.start(HTTP)
    scene.put(b"one")
    scene.put(b"two")
    scene.journal.wait_for_data(b"one", b"two")
    eventually(lambda: ready(worker) == [])
    assert live(worker) == []
    eventually(lambda: worker.records_total() == len(worker.status()) == 2)
    status = json.loads(ask(worker, "/status")[1])
    assert status["application"] == scene.stream
    assert status["records"] == 2
    assert sorted(shard["shard_id"] for shard in status["shards"]) == [FIRST, SECOND]
    assert {shard["state"] for shard in status["shards"]} == {"processing"}
    assert (status["not_live"], status["not_ready"], status["failures"]) == ([], [], [])
    name = "sparkinesis_records_processed_total"
    eventually(lambda: [value for _, value in scraped(worker, name)] == [2])
    ((labels, _),) = scraped(worker, name)
    own = {"application": scene.stream, "stream": scene.stream}
    assert labels == {**own, "worker": status["worker"]}


def scraped(worker: Worker, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values of a metric's samples."""
    text = ask(worker, "/metrics")[1]
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def test_a_worker_that_has_ended_or_cannot_be_made_or_started_frees_its_port(scene: Scene) -> None:
    first = scene.start(HTTP)
    at = urlsplit(str(first.http_url)).netloc
    assert first.shutdown(60)
    assert first.http_url is None
    with pytest.raises(StreamNotFoundError):
        scene.application({"http": at}, stream="no-such-stream").worker()
    worker = scene.application({"http": at}).worker()
    assert ready(worker) == ["the worker has not seen the whole lease table yet"]
    scene.dynamodb.delete_table(TableName=scene.stream)
    with pytest.raises(Exception, match="lease table"):
        worker.start()
    scene.application({"http": at}, name=f"{scene.stream}-2").worker().shutdown(0)


def test_a_worker_without_leases_is_ready(scene: Scene) -> None:
    name = f"{scene.stream}-one"
    create_when_permitted(scene.kinesis, name)
    first = scene.start(HTTP, name=name, stream=name)
    eventually(lambda: len(first.status()) == 1)
    idle = scene.start(HTTP, name=name, stream=name)
    eventually(lambda: ready(idle) == [])
    assert (len(first.status()), idle.status()) == (1, [])


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_both_are_true_through_a_reshard_and_on_an_idle_stream(scene: Scene) -> None:
    options = {**HTTP, "audit_interval": 0.5, "cleanup_interval": 0.5}
    worker = healthy(scene, options, on_records=checkpoint)
    waits = iter(range(10**6))

    def is_true() -> bool:
        assert ready(worker) == []
        return next(waits) >= 20

    stays_live_until(worker, is_true)  # nothing arrives
    scene.split()

    def has_children() -> bool:
        assert ready(worker) == []
        return {"shardId-000000000002", "shardId-000000000003"} <= {
            shard.shard_id for shard in worker.status()
        }

    stays_live_until(worker, has_children)


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Ends a thread as an error does that nothing catches, once the thread is awake.

    Python says nothing of a SystemExit in a thread, and pytest warns of it.
    """
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    def end(thread: threading.Thread, wake: Callable[[], object] = lambda: None) -> None:
        assert thread.ident is not None
        killed = ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(*killed) == 1
        wake()
        thread.join(60)
        assert not thread.is_alive()

    return end


@pytest.mark.parametrize(
    ("loop", "does"),
    [
        ("renew", "renews leases"),
        ("take", "takes leases"),
        ("shards", "syncs shards"),
        ("consume", "runs the shard consumers"),
    ],
)
def test_a_loop_that_died_is_told_within_fifteen_seconds(
    scene: Scene, kill: Callable[..., None], loop: str, does: str
) -> None:
    # A thread dies when its wait returns, so the intervals are short.
    worker = healthy(scene, {**HTTP, "cleanup_interval": 0.5, "audit_interval": 0.5})
    (thread,) = (one for one in worker._state.loops if one.name == f"{scene.stream}-{loop}")
    kill(thread)
    died = time.monotonic()
    assert live(worker) == [f"the loop that {does} has died"]
    assert time.monotonic() - died < LONGEST
    if loop == "consume":
        shut_down_without_its_loop(worker)


def shut_down_without_its_loop(worker: Worker) -> None:
    """End a worker whose consumer loop has died: its other threads would go on for ever."""
    worker.request_shutdown(0)
    state, settings = worker._state, worker._settings
    ConsumerLoop(state, settings, worker._coordinator, worker._streams).run()


def test_a_pool_that_nobody_dispatches_is_told(scene: Scene, kill: Callable[..., None]) -> None:
    worker = healthy(scene)
    watch = worker._settings.fetchers._watch.thread
    assert watch is not None
    kill(watch)
    assert "the pool that fetches has died" in live(worker)


def test_a_thread_that_watches_no_more_subscriptions_is_told(
    scene: Scene, kill: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = SocketWatch()  # the process's own serves the tests that follow
    for module in ("stream.fan_out.current_subscription", "worker.lifecycle.worker"):
        monkeypatch.setattr(f"sparkinesis.{module}.socket_watch", lambda: mine)
    worker = scene.start({**HTTP, "retrieval": "efo"})
    eventually(lambda: mine._thread is not None and len(worker.status()) == 2)
    assert live(worker) == []
    one, other = socket.socketpair()
    mine.when_readable(one.fileno(), lambda: None)
    # The thread waits for sockets: it dies as soon as one wakes it, as the ends of readers do.
    kill(mine._thread, wake=lambda: other.send(b"x"))
    assert live(worker) == ["the thread that watches subscriptions has died"]
    one.close()
    other.close()


def test_a_table_that_answers_byte_by_byte_holds_up_no_loop(scene: Scene, relay: Relay) -> None:
    """For ever: no timeout of a socket ends such a call, but its bound from its start does."""
    worker = healthy(scene, dynamodb_endpoint=relay.endpoint)
    relay.mood = "drips"

    def is_told() -> bool:
        return any("lease table was" in why for why in ready(worker))

    stays_live_until(worker, is_told)
    relay.mood = "well"
    relay.over.set()
    stays_live_until(worker, lambda: ready(worker) == [])


@pytest.mark.parametrize("mood", ["silent", pytest.param("hangs up", marks=pytest.mark.long)])
def test_a_long_outage_of_dynamodb_is_no_loop_that_stands_still(
    scene: Scene, relay: Relay, mood: Any
) -> None:
    """Longer than the time after which a loop without a sign of life stands still."""
    worker = healthy(scene, dynamodb_endpoint=relay.endpoint)
    relay.mood = mood
    began = time.monotonic()

    def is_told() -> bool:
        return (
            time.monotonic() - began > LONGEST + 3
            and relay.asked >= 3
            and any("lease table was" in why for why in ready(worker))
        )

    stays_live_until(worker, is_told)
    (why,) = ready(worker)
    assert "LeaseTableUnavailableError" in why
    relay.mood = "well"
    stays_live_until(worker, lambda: ready(worker) == [])


def test_refused_and_expired_credentials_are_no_reason_to_kill_a_worker(scene: Scene) -> None:
    worker = healthy(scene)

    def refuse(call: Call) -> Fault | None:
        of_tables = call.operation in {"Scan", "UpdateItem", "BatchExecuteStatement"}
        is_own = of_tables and call.stream in {scene.stream, None}
        return Fault.error("ExpiredTokenException") if is_own else None

    scene.faults(refuse)
    cause = "AccessDeniedError: The credentials have expired"
    stays_live_until(worker, lambda: any(cause in why for why in ready(worker)))
    asked = len(scene.server.kinesis.calls)
    stays_live_until(worker, lambda: len(scene.server.kinesis.calls) > asked + 12)
    (line,) = told(scene.caplog, "Taking leases failed")
    assert "retried: The credentials have expired" in line
    assert "dynamodb:" not in line
    scene.faults(None)
    stays_live_until(worker, lambda: ready(worker) == [])


def test_a_deleted_table_is_no_reason_to_kill_a_worker(scene: Scene, dynamodb: Any) -> None:
    """Its successor would make the table anew, and begin at the latest record."""
    worker = healthy(scene)
    dynamodb.delete_table(TableName=scene.stream)
    stays_live_until(worker, lambda: "the lease table was deleted" in ready(worker))
    stays_live_until(worker, lambda: not worker.status())
    unseen = "sparkinesis_table_unseen_seconds"
    stays_live_until(worker, lambda: scraped(worker, unseen)[0][1] > 2 * FAILOVER_TIME)
    assert scene.stream not in dynamodb.list_tables()["TableNames"]
    assert json.loads(ask(worker, "/status")[1])["problem"] == "the lease table was deleted"


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_call_beyond_the_limit_makes_it_false_only_if_asked(
    scene: Scene, *, is_asked: bool
) -> None:
    gate = Gate()
    options = {**HTTP, "processing_time_limit": 0.05, "unhealthy_after_limit": is_asked}
    worker = scene.start(options, on_records=gate)
    scene.put(b"one")
    eventually(lambda: any((one.processing_for or 0) > 0.1 for one in worker.status()))
    if is_asked:
        (why,) = live(worker)
        assert "process_records has taken 0 s on shardId-" in why
        gate.go_on.set()
        eventually(lambda: live(worker) == [])
    else:
        assert live(worker) == []
    gate.go_on.set()


def test_a_worker_that_shuts_down_is_not_ready(scene: Scene) -> None:
    gate = Gate()
    worker = scene.start(HTTP, on_records=gate)
    scene.put(b"one")
    eventually(lambda: any(one.processing_for is not None for one in worker.status()))
    worker.request_shutdown()
    assert ready(worker) == ["the worker is shutting down"]
    assert live(worker) == []
    gate.go_on.set()
    assert worker.wait(60)


PROGRAM = """
import sys
from sparkinesis import Application, RecordProcessor, WorkerOptions

endpoint, stream = sys.argv[1:]

class Processor(RecordProcessor):
    def process_records(self, batch, checkpointer):
        pass

options = WorkerOptions(http="127.0.0.1:0")
worker = Application(stream, stream, Processor, "us-east-1", endpoint, options=options).worker()
worker.start()
print(worker.http_url, flush=True)
worker.wait()
"""


@pytest.mark.long
def test_a_process_that_was_stopped_is_live_when_it_goes_on(scene: Scene) -> None:
    """Longer than any loop may be silent. The time in which it was stopped does not count."""
    command = [sys.executable, "-c", PROGRAM, scene.server.endpoint_url, scene.stream]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            process.send_signal(signal.SIGSTOP)
            threading.Event().wait(LONGEST + 5)  # the time that is the subject of this test
            process.send_signal(signal.SIGCONT)
            for _ in range(100):
                assert json.loads(get(f"{url}/livez")[1])["live"]
                time.sleep(0.05)
        finally:
            process.kill()
