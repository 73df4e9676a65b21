"""A fleet's worker without Spark: real control server and stream, in a thread or process."""

from __future__ import annotations

import base64
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from sparkinesis.application import Application, SupervisedApplication
from sparkinesis.errors import FleetError
from sparkinesis.fleet.channel import accept_worker
from sparkinesis.fleet.control_server import ControlServer
from sparkinesis.fleet.executor_worker import ExecutorWorker, SparkTask, WorkerSpec, task_function
from sparkinesis.local import LocalServer
from sparkinesis.metrics.catalogue import RECORDS_PROCESSED
from sparkinesis.worker.lifecycle.streams import several_streams
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ShutDown,
    Start,
    Wait,
    decode_for_supervisor,
)
from sparkinesis.worker.supervision.hosted_worker import MOST, longest
from tests.journal import Journal, Journaling
from tests.pace import eventually
from tests.streams import put
from tests.unit.fleet.wire import (
    CREDENTIALS,
    IDENTITY,
    OTHER_RUN,
    PATIENCE,
    SECRET,
    in_thread,
    listening,
    port_of,
)

Make = Callable[..., Application]
DATA = [b"%d" % number for number in range(20)]
BEAT = 0.2


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def application(server: LocalServer, journal: Journal) -> Make:
    """Return a function that makes applications on a stream of two shards."""
    kinesis = server.client("kinesis")
    name = f"s-{uuid.uuid4().hex[:8]}"
    kinesis.create_stream(StreamName=name, ShardCount=2)
    put(kinesis, name, DATA)

    def make(**given: Any) -> Application:
        arguments: dict[str, Any] = {
            "name": name,
            "stream": name,
            "processor": lambda: Journaling(journal, on_shutdown=lambda c: c.checkpoint()),
            "region": "us-east-1",
            "endpoint": server.endpoint_url,
            "initial_position": "trim_horizon",
            "options": WorkerOptions(failover_time=2.0, idle_time=0.25, shutdown_timeout=20.0),
        }
        return Application(**{**arguments, **given})

    return make


class Driver:
    """A control server with heartbeats, and the messages that it received."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.worker_id = ""
        self._changed = threading.Condition()
        self.control = ControlServer("127.0.0.1", 0, IDENTITY, self._on_message)
        self._gone = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def close(self) -> None:
        self._gone.set()
        self._beating.join()
        self.control.close()

    def say(self, message: Any) -> None:
        self.control.send(message, self.worker_id)

    def wait(self, application: Application, lost_after: float = PATIENCE) -> Future[Any]:
        """Run a worker, which waits to be told, in a thread; return the future of its row."""
        row = run_worker(spec(application, self, lost_after))
        self.wait_for(Hello)
        return row

    def start(self, application: Application, lost_after: float = PATIENCE) -> Future[Any]:
        """Start a worker in a thread; return the future of its row."""
        row = self.wait(application, lost_after)
        self.say(Start())
        return row

    def end(self, row: Future[Any]) -> None:
        """Shut the worker down gracefully."""
        self.say(ShutDown(PATIENCE))
        assert self.wait_for(Ended) == Ended(True)
        row.result(PATIENCE)

    def wait_for(self, kind: type, condition: Callable[[Any], bool] = lambda _: True) -> Any:
        def found() -> list[Any]:
            return [each for each in self.told if isinstance(each, kind) and condition(each)]

        with self._changed:
            assert self._changed.wait_for(found, PATIENCE), (kind, self.told)
            return found()[0]

    def kinds(self, *among: type) -> list[type]:
        return [type(each) for each in self.told if isinstance(each, among)]

    def forget(self) -> None:
        with self._changed:
            self.told.clear()

    def _on_message(self, worker_id: str, message: Any) -> None:
        with self._changed:
            self.worker_id = worker_id
            self.told.append(message)
            self._changed.notify_all()

    def _beat(self) -> None:
        while not self._gone.wait(BEAT):
            self.control.send(Ping())


@pytest.fixture
def driver() -> Iterator[Driver]:
    running = Driver()
    yield running
    running.close()


@dataclass
class Sticking:
    """Holds the first calls of processors until the test is over."""

    is_stuck: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, *_: Any) -> None:
        self.is_stuck.set()
        self.is_over.wait(PATIENCE)


@pytest.fixture
def sticking() -> Iterator[Sticking]:
    made = Sticking()
    yield made
    made.is_over.set()


def spec(application: Application, driver: Driver, lost_after: float = PATIENCE) -> WorkerSpec:
    supervised = SupervisedApplication.of(application)
    return WorkerSpec(
        supervised, "127.0.0.1", driver.control.port, CREDENTIALS, BEAT, lost_after, logging.INFO
    )


def hosted(worker_spec: WorkerSpec) -> ExecutorWorker:
    return ExecutorWorker(worker_spec, 5, 7, SparkTask(2, 3, 0))


def run_worker(worker_spec: WorkerSpec) -> Future[Any]:
    """Run a worker in a thread; return the future of its row."""
    return in_thread(hosted(worker_spec).run)


def has_all(report: Report) -> bool:
    return report.records == len(DATA)


def assert_released(application: Application, *, is_checkpointed: bool = True) -> None:
    leases = application.table().leases()
    assert leases
    for lease in leases:
        assert lease.owner is None, lease
        assert not is_checkpointed or lease.checkpoint.sequence_number.isdigit(), lease


def test_a_worker_from_start_to_shutdown(
    application: Make, driver: Driver, journal: Journal
) -> None:
    row = run_worker(spec(application(), driver))
    hello = driver.wait_for(Hello)
    assert (hello.slot, hello.job, hello.attempt, hello.stage_id) == (7, 5, 0, 2)
    assert (hello.pid, hello.task_attempt_id) == (os.getpid(), 3)
    assert not hello.is_running
    assert not hello.is_leaving
    assert driver.wait_for(Report) == Report((), 0), "it waits to be told"
    driver.say(Start())
    report = driver.wait_for(Report, has_all)
    assert report.is_running
    assert not report.failures
    assert len(report.shards) == 2
    assert sum(shard.records for shard in report.shards) == len(DATA)
    driver.say(ShutDown(PATIENCE))
    assert driver.wait_for(Ended) == Ended(True)
    assert row.result(PATIENCE).to_pylist() == [
        {"slot": 7, "worker_id": driver.worker_id, "records": len(DATA), "error": None}
    ]
    assert len(journal.calls("shutdown_requested")) == 2
    assert not driver.kinds(Leaving), "it was told to"
    assert_released(application())
    assert {each.streams for each in driver.told if isinstance(each, Report)} == {None}


def test_a_shard_that_nobody_reads_is_reported(application: Make, driver: Driver) -> None:
    """This worker has no room for it."""
    one = WorkerOptions(failover_time=2.0, idle_time=0.25, max_leases=1)
    row = driver.start(application(options=one))
    report = driver.wait_for(Report, lambda report: report.shards and report.unread)
    (read,) = (shard.shard_id for shard in report.shards)
    assert {read, *report.unread} == {"shardId-000000000000", "shardId-000000000001"}
    driver.wait_for(Report, lambda report: any((report.unread or {}).values()))
    driver.end(row)


@pytest.fixture
def two_streams(application: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Application, str]:
    """An application of a stream of two shards and of a missing stream, whose name it returns."""
    monkeypatch.setattr(several_streams, "_RETRY", (0.2, 0.4))
    monkeypatch.setattr(several_streams, "_SOON", 0.1)
    missing = f"late-{uuid.uuid4().hex[:8]}"
    streams = [application().name, missing]
    return application(stream=None, streams=streams), missing


def test_streams_are_reported_when_they_change(
    two_streams: tuple[Application, str], driver: Driver, server: LocalServer
) -> None:
    several, missing = two_streams
    row = driver.start(several)
    first = driver.wait_for(Report, lambda report: report.streams is not None)
    (fine, late) = first.streams
    assert (fine.stream, fine.problem) == (several.name, None)
    assert fine.identifier.split(":")[1] == several.name
    assert late.stream == missing
    assert late.problem.startswith("StreamNotFoundError: ")
    assert late.failing_for is not None
    report = driver.wait_for(Report, has_all)
    assert {shard.lease.rpartition(":")[0] for shard in report.shards} == {fine.identifier}
    beats = [each for each in driver.told if isinstance(each, Report) and each.is_running]
    assert [each.streams for each in beats if each is not first] == [None] * (len(beats) - 1)
    driver.forget()
    driver.control.drop(driver.worker_id)
    again = driver.wait_for(Report, lambda report: report.streams is not None)
    assert [one.stream for one in again.streams] == [several.name, missing], "on a new connection"
    server.client("kinesis").create_stream(StreamName=missing, ShardCount=1)
    found = driver.wait_for(
        Report, lambda report: report.streams and report.streams[1].problem is None
    )
    assert found.streams[1].identifier.split(":")[1] == missing
    driver.end(row)


def test_a_function_of_streams_that_hangs_keeps_no_lease_from_being_renewed(
    application: Make, driver: Driver, sticking: Sticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked in other threads than those that renew leases and report."""
    monkeypatch.setattr(several_streams, "ASK_EVERY", 0.1)
    name, asked = application().name, []

    def streams() -> list[str]:
        asked.append(threading.current_thread().name)
        if len(asked) > 1:
            sticking()
        return [name]

    several = application(stream=None, streams=streams)
    row = driver.wait(several)
    assert asked == [], "a worker that waits asks nothing"
    driver.say(Start())
    assert sticking.is_stuck.wait(PATIENCE)
    counters = {lease.key: lease.counter for lease in several.table().leases()}
    driver.forget()
    driver.wait_for(Report, lambda report: len(report.shards) == 2)
    eventually(
        lambda: all(lease.counter >= counters[lease.key] + 2 for lease in several.table().leases())
    )
    sticking.is_over.set()
    driver.end(row)


def test_a_standby_can_be_started(application: Make, driver: Driver) -> None:
    row = driver.wait(application())
    for message in (Wait(), Start(), Start(), Wait()):
        driver.say(message)
    driver.wait_for(Report, has_all)
    driver.end(row)


def test_a_record_processor_ends_the_application(
    application: Make, driver: Driver, journal: Journal
) -> None:
    def make() -> Journaling:
        processor = Journaling(journal, lambda *_: processor.shard.request_shutdown())
        return processor

    row = driver.start(application(processor=make))
    assert driver.wait_for(Ended) == Ended(True)
    assert driver.wait_for(Leaving).is_for_all
    assert driver.kinds(Leaving, Ended) == [Leaving, Ended]
    row.result(PATIENCE)
    assert_released(application(), is_checkpointed=False)


def test_the_drivers_time_for_a_shutdown_counts(
    application: Make, driver: Driver, journal: Journal, sticking: Sticking
) -> None:
    options = WorkerOptions(failover_time=2.0, idle_time=0.25, shutdown_timeout=3600.0)
    row = driver.start(
        application(processor=lambda: Journaling(journal, sticking), options=options)
    )
    assert sticking.is_stuck.wait(PATIENCE)
    driver.wait_for(Report, lambda report: report.is_running)
    driver.say(ShutDown(0.5))
    assert driver.wait_for(Ended) == Ended(False)
    row.result(PATIENCE)


def test_a_worker_that_cannot_start_says_why(application: Make, driver: Driver) -> None:
    row = driver.start(application(stream="no-such-stream"))
    ended = driver.wait_for(Ended)
    assert not ended.was_graceful
    assert "no-such-stream" in ended.error
    assert ended.error.startswith("StreamNotFoundError")
    assert row.result(PATIENCE).to_pylist()[0]["error"] == ended.error


def test_without_its_driver_a_worker_shuts_down_gracefully(
    application: Make, driver: Driver, journal: Journal
) -> None:
    row = driver.start(application(), 1.0)
    driver.wait_for(Report, has_all)
    driver.close()
    assert row.result(PATIENCE).to_pylist()[0]["error"] is None
    assert len(journal.calls("shutdown_requested")) == 2
    assert_released(application())


def test_a_standby_without_driver_ends(application: Make, driver: Driver) -> None:
    worker = hosted(spec(application(), driver, 0.5))
    row = in_thread(worker.run)
    driver.wait_for(Hello)
    while not worker._link.has_answer:
        driver.forget()
        driver.wait_for(Report)
    driver.close()
    assert row.result(PATIENCE).num_rows == 1


def test_a_worker_that_never_had_an_answer_fails_its_task(application: Make) -> None:
    """The driver may not know of the worker, and would wait for ever for a task that succeeded."""
    with listening() as listener:
        port = port_of(listener)
        supervised = SupervisedApplication.of(application())
        worker_spec = WorkerSpec(
            supervised, "127.0.0.1", port, CREDENTIALS, BEAT, 0.5, logging.INFO
        )
        row = run_worker(worker_spec)
        silent = accept_worker(listener.accept()[0], IDENTITY)
        assert isinstance(decode_for_supervisor(silent.receive()), Hello)
        with pytest.raises(FleetError, match="received no message"):
            row.result(PATIENCE)
        silent.close()


def test_a_connection_that_breaks_costs_nothing(
    application: Make, driver: Driver, journal: Journal
) -> None:
    """Failures are reported again too: the last report on the old connection may be lost."""

    def fail(*_: Any) -> None:
        raise ValueError("no good")

    row = driver.start(application(processor=lambda: Journaling(journal, fail)))
    before = driver.wait_for(Report, lambda report: bool(report.failures)).failures[0]
    driver.forget()
    driver.control.drop(driver.worker_id)
    assert driver.wait_for(Hello).is_running
    driver.forget()
    again = driver.wait_for(Report, lambda report: bool(report.failures)).failures[0]
    assert again.fingerprint == before.fingerprint
    assert again.count >= before.count
    driver.say(ShutDown(PATIENCE))
    assert driver.wait_for(Ended).was_graceful
    row.result(PATIENCE)


def test_the_last_counts_wait_for_a_connection(
    application: Make, driver: Driver, journal: Journal
) -> None:
    """The driver keeps a worker's counters, and has no later report of them."""
    port = driver.control.port
    is_gone, one_at_a_time = threading.Event(), threading.Lock()

    def lose_the_driver(_: Any) -> None:
        with one_at_a_time:
            if is_gone.is_set():
                return
            driver.close()
            # What is given to TCP before it knows that nobody is there is gone.
            eventually(lambda: not worker._link.send(Report((), 0)))
            is_gone.set()

    made = application(
        processor=functools.partial(Journaling, journal, on_shutdown=lose_the_driver),
        options=WorkerOptions(failover_time=2.0, idle_time=0.25, http=":0"),
    )
    worker = hosted(spec(made, driver))
    row = in_thread(worker.run)
    driver.wait_for(Hello)
    driver.say(Start())
    driver.wait_for(Report, has_all)
    driver.say(ShutDown(PATIENCE))
    assert is_gone.wait(PATIENCE)
    driver.forget()
    driver.control = ControlServer("127.0.0.1", port, IDENTITY, driver._on_message)
    driver.wait_for(Ended)
    last = [each for each in driver.told if isinstance(each, Report)][-1]
    counted = [one.value for one in last.series or () if one.metric == RECORDS_PROCESSED.name]
    assert (last.records, counted) == (len(DATA), [len(DATA)])
    row.result(PATIENCE)


def test_a_shutdown_while_it_starts_leaves_nothing_behind(
    application: Make, driver: Driver, journal: Journal
) -> None:
    row = driver.start(application())
    driver.end(row)
    assert not any("start-worker" in thread.name for thread in threading.enumerate())
    assert journal.calls("initialize") == [] or len(journal.calls("shutdown_requested")) == 2


def test_a_start_that_hangs_does_not_hold_up_a_shutdown(application: Make, driver: Driver) -> None:
    with listening() as silent:  # accepts, by the kernel's backlog, and never answers
        endpoint = f"http://127.0.0.1:{port_of(silent)}"
        row = driver.start(application(endpoint=endpoint))
        with silent.accept()[0]:
            driver.say(ShutDown(0.5))
            assert driver.wait_for(Ended) == Ended(False)
            row.result(PATIENCE)


def test_a_shutdown_that_is_heard_late_in_a_start_has_its_limit_all_the_same(
    application: Make, driver: Driver, journal: Journal, sticking: Sticking
) -> None:
    """A report could not be sent for a while, and the worker has started meanwhile."""
    app = application(processor=lambda: Journaling(journal, sticking))
    worker = hosted(spec(app, driver, lost_after=0.5))  # no connection takes its last report
    worker._handle(Start())
    ready = worker._events.get(timeout=PATIENCE)
    assert sticking.is_stuck.wait(PATIENCE)
    assert worker._handle(ShutDown(0.5)) is None, "it is not over yet"
    worker._handle(ready)
    gone = worker._events.get(timeout=PATIENCE / 4)
    assert worker._handle(gone) == Ended(False)


def test_an_error_in_its_own_loop_leaves_no_worker_behind(
    application: Make, driver: Driver, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reuses the Python process, in which the worker would keep running unnoticed."""
    worker = hosted(spec(application(), driver))
    row = in_thread(worker.run)
    driver.wait_for(Hello)
    driver.say(Start())
    driver.wait_for(Report, has_all)
    monkeypatch.setattr(worker, "_report", lambda: 1 / 0)
    assert isinstance(row.exception(PATIENCE), ZeroDivisionError)
    journal.wait(lambda: len(journal.calls("shutdown_requested")) == 2)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_process_that_is_sent_a_signal_checkpoints_releases_and_exits(
    application: Make, driver: Driver, number: signal.Signals
) -> None:
    """Spark's Python workers receive SIGHUP when their executor dies."""
    app = application()
    module = "tests.unit.fleet.executor_worker_process"
    arguments = [str(driver.control.port), str(app.endpoint), str(app.stream)]
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(f"{SECRET.hex()}\n{CREDENTIALS.certificate.hex()}\n")
            process.stdin.flush()
            hello = driver.wait_for(Hello)
            driver.say(Start())
            driver.wait_for(Report, has_all)
            os.kill(hello.pid, number)
            assert driver.wait_for(Ended) == Ended(True)
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, said
    leaving = driver.wait_for(Leaving)
    assert number.name in leaving.why
    assert not leaving.is_for_all, "others go on"
    assert_released(app)
    for form in forms_of_secret():
        assert form not in said, "all of its log, from DEBUG on"


def test_a_report_lists_the_shards_that_wait_longest() -> None:
    assert longest(None) is None
    found = longest({f"s{n}": float(n) for n in range(3 * MOST)})
    assert found is not None
    assert len(found) == MOST
    assert min(found.values()) == 2 * MOST


# --- the secret


def forms_of_secret() -> list[str]:
    """Return the forms in which the secret could appear in a text."""
    return [
        SECRET.hex(),
        base64.b64encode(SECRET).decode(),
        repr(SECRET)[2:20],
        str(list(SECRET))[1:20],
    ]


def test_a_spec_shows_no_secret(application: Make, driver: Driver) -> None:
    worker_spec = spec(application(), driver)
    worker = hosted(worker_spec)
    task = task_function(worker_spec, 1, (0,), lambda: SparkTask(3, 4, 0))
    for shown in (
        repr(worker_spec),
        str(worker_spec),
        f"{worker_spec}",
        repr(worker),
        repr(vars(worker)),
        repr(task),
    ):
        assert not any(form in shown for form in forms_of_secret())


@pytest.mark.parametrize("is_there", [True, False], ids=["of another run", "none"])
def test_without_a_driver_of_its_own_a_task_fails_and_tells_no_secret(
    application: Make, driver: Driver, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    with listening() as listener:
        port = driver.control.port if is_there else port_of(listener)
    credentials = OTHER_RUN.credentials if is_there else CREDENTIALS
    worker_spec = replace(
        spec(application(), driver, 0.5), port=port, credentials=credentials, log_level="DEBUG"
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(FleetError) as raised:
        hosted(worker_spec).run()
    if not is_there:
        assert "FleetOptions" in str(raised.value), "what to set"
        assert f"127.0.0.1:{port}" in str(raised.value)
    assert not driver.told
    for form in forms_of_secret():
        assert form not in caplog.text + repr(raised.value)


def test_a_task_hosts_a_worker_for_its_slot(application: Make, driver: Driver) -> None:
    """Spark passes batches of one row, which is an index of the job's slots."""
    task = task_function(spec(application(), driver), 9, (4, 6), lambda: SparkTask(3, 4, 1))
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    rows = in_thread(lambda: list(task(iter([batch]))))
    hello = driver.wait_for(Hello)
    assert (hello.job, hello.slot, hello.attempt) == (9, 6, 1)
    driver.say(ShutDown(PATIENCE))
    assert [row["slot"] for each in rows.result(PATIENCE) for row in each.to_pylist()] == [6]
    driver.wait_for(Disconnected)
    assert socket.gethostname() == hello.host
