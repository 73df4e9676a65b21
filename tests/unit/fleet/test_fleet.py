"""A fleet's handle where Spark is not needed: what goes wrong at its start, in it, and at its end.

In Spark's place stands a session whose jobs run nothing: they last until they are cancelled.
"""

from __future__ import annotations

import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry

from sparkinesis.application import SupervisedApplication
from sparkinesis.errors import FleetError, OptionError, ProcessorError
from sparkinesis.fleet.fleet import Fleet
from sparkinesis.fleet.fleet_options import FleetOptions
from sparkinesis.fleet.terminal_view import fleet_view
from sparkinesis.metrics.catalogue import FLEET_RESTARTS
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.prometheus import PrometheusMetrics
from sparkinesis.metrics.tally import Series, Tally
from sparkinesis.queue.application import QueueApplication, SupervisedQueue
from sparkinesis.status import FleetState, FleetStatus, ShardState, ShardStatus, StreamStatus
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory
from sparkinesis.worker.lifecycle.streams.stream_config import FormerStreams, StreamConfig
from sparkinesis.worker.on_error import DeadLetter, Retry
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Ended,
    Ping,
    Report,
)
from sparkinesis.worker.supervision.gathered_reports import GatheredReports
from sparkinesis.worker.supervision.supervisor import Supervisor
from tests.pace import eventually
from tests.tallies import counted
from tests.unit.fleet.idle_spark import OPTIONS, Processor, application, hello, make, receive, tell
from tests.unit.fleet.wire import PATIENCE, listening, port_of


class Tallies:
    """An exporter of fleets, which can be pickled; it keeps in memory what they have measured."""

    opened: ClassVar[list[tuple[Measured, Tallied]]] = []

    def open(self, measured: Measured) -> Tallied:
        self.opened.append((measured, Tallied()))
        return self.opened[-1][1]


class Tallied(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


def launcher(fleet: Fleet) -> Any:
    return fleet._supervisor._launcher


def threads() -> set[str]:
    """The threads of fleets; those of an earlier test may still end."""
    return {thread.name for thread in threading.enumerate() if "fleet" in thread.name}


class Clock:
    """Stands still until the fleet is to end, but for what a test adds."""

    def __init__(self) -> None:
        self.now, self.began = 0.0, math.inf

    def __call__(self) -> float:
        return self.now + max(0.0, time.monotonic() - self.began)

    def run(self) -> None:
        self.began = time.monotonic()


def test_the_options_reach_spark_and_the_workers(spark: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = replace(
        OPTIONS, host="localhost", bind="0.0.0.0", port=port, job_group="my, own", log_level="ERROR"
    )
    fleet = make(spark, 1, options)
    spark.wait_for_jobs(1)
    spec = launcher(fleet)._spec
    assert (spec.host, spec.port, spec.log_level) == ("localhost", port, "ERROR")
    assert (spec.heartbeat_interval, spec.lost_after) == (0.1, 0.5)
    assert launcher(fleet)._control._entrance._listener.getsockname() == ("0.0.0.0", port)
    assert spark.group == "my  own"
    fleet.shutdown()


def test_workers_without_a_core_are_noted(spark: Any) -> None:
    """At the start, and after more workers than cores were asked for."""
    clock = Clock()
    fleet = Fleet(SupervisedApplication.of(application()), spark, 2, OPTIONS, clock)
    spark.wait_for_jobs(2)

    def wait_for(text: str) -> None:
        assert fleet._supervisor.wait_until(
            lambda: text in " ".join(fleet.status().notes), PATIENCE
        )

    assert fleet.status().state is FleetState.RUNNING
    assert not [note for note in fleet.status().notes if "wait" in note]
    clock.now += 11.0
    wait_for("No worker runs yet: all 2 still wait for Spark")
    wait_for("If Spark runs the tasks already, its executors cannot reach this program")
    assert fleet.status().waiting == 2
    receive(fleet, "w", hello(runs=False))
    fleet.scale(9)
    spark.wait_for_jobs(9)
    clock.now += 11.0
    wait_for(
        "8 of 9 workers still wait for Spark to run their tasks. Each worker needs a free core"
    )
    clock.run()
    fleet.shutdown(0)


@pytest.mark.parametrize(
    ("master", "path", "is_noted"),
    [
        ("spark://host:7077", "/var/dead", True),
        ("spark://host:7077", "file:///var/dead", True),
        ("spark://host:7077", "s3://lake/dead", False),
        ("local[2]", "/var/dead", False),
    ],
)
def test_a_local_directory_for_dead_letters_is_told_where_executors_are_elsewhere(
    spark: Any, caplog: pytest.LogCaptureFixture, *, master: str, path: str, is_noted: bool
) -> None:
    spark.master = master
    fleet = make(spark, on_error=Retry(3, then=DeadLetter(DeadLetterDirectory(path))))
    told = [note for note in fleet.status().notes if "dead-letter directory" in note]
    fleet.shutdown()
    assert len(told) == is_noted
    assert (f"The dead-letter directory {path} is a local one" in caplog.text) == is_noted


def test_a_local_directory_of_one_of_several_streams_is_told_once(spark: Any) -> None:
    spark.master = "spark://host:7077"
    local = DeadLetter(DeadLetterDirectory("/var/dead"))
    both = [StreamConfig(name, on_error=local) for name in ("app", "tv")]
    fleet = make(spark, streams=["web", *both])
    notes = [note for note in fleet.status().notes if "dead-letter directory /var/dead" in note]
    fleet.shutdown()
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("streams", "what"),
    [
        (["web"], "stream web"),
        (["web", "arn:aws:kinesis:us-east-1:123456789012:stream/app"], "streams web, app"),
        ([f"s{n}" for n in range(6)], "6 streams"),
        (lambda: 1 / 0, "several streams"),
    ],
)
def test_sparks_jobs_name_the_streams(spark: Any, streams: Any, what: str) -> None:
    fleet = make(spark, streams=streams)
    spark.wait_for_jobs(1)
    assert spark.description == f"app on {what}"
    assert fleet_view(fleet.status()).title == f"app, {what}"
    fleet.shutdown()


def test_a_stream_that_cannot_be_read_is_noted_once(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    missing = StreamStatus("mobile", None, "StreamNotFoundError: no mobile", 1.0)
    found = StreamStatus("mobile", "1:mobile:7")
    fleet = make(spark, streams=["web", "mobile"])
    spark.wait_for_jobs(1)
    for worker in ("v", "w"):
        tell(fleet, hello(worker), Report((), 0, True, streams=(missing,)), Report((), 0, True))
    assert fleet._supervisor.wait_until(
        lambda: [one.failing_on for one in fleet.status().streams] == [("v", "w")], PATIENCE
    )
    (mobile,) = fleet.status().streams
    assert (mobile.stream, mobile.problem) == ("mobile", "StreamNotFoundError: no mobile")
    assert mobile.failing_for is not None
    assert mobile.failing_for >= 1.0
    for worker in ("v", "w"):
        receive(fleet, worker, Report((), 0, True, streams=(found,)))
    fleet.shutdown()
    noted = [note for note in fleet.status().notes if "mobile" in note]
    assert noted == [
        (
            "Worker v cannot read stream mobile now, and tries again; the other streams are not "
            "affected: StreamNotFoundError: no mobile"
        ),
        "All workers can read stream mobile now",
    ]
    logged = [record for record in caplog.records if "mobile" in record.getMessage()]
    assert [record.levelname for record in logged] == ["WARNING"]


class Deferring(Processor):
    def process_records(self, batch: Any, checkpointer: Any) -> Any:
        yield


LOCK = threading.Lock()


def with_lock(lock: Any = LOCK) -> Callable[[], Any]:
    return lambda: lock and Processor()


def streams_with_lock(lock: Any = LOCK) -> Callable[[], list[str]]:
    return lambda: lock and ["web"]


CANNOT_SEND = r"of.*'app'.*_thread.lock.*within it"
OWN = StreamConfig("mobile", processor=with_lock())


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        *(({"workers": none}, OptionError, "workers") for none in (0, -1, True, 1.5, "2")),
        ({"worker_id": "me"}, OptionError, "worker_id"),
        ({"processor": with_lock()}, ProcessorError, r"initialize\(\)"),
        ({"streams": ["web", OWN]}, ProcessorError, r"of stream 'mobile'.*initialize\(\)"),
        ({"streams": streams_with_lock()}, OptionError, f"function streams {CANNOT_SEND}"),
        (
            {"streams": ["web"], "former_streams": FormerStreams(1.0, streams_with_lock())},
            OptionError,
            f"function only of former_streams {CANNOT_SEND}",
        ),
        (
            {"metrics": (PrometheusMetrics(CollectorRegistry()),)},
            OptionError,
            "^PrometheusMetrics with a registry cannot be sent",
        ),
        ({"processor": Deferring}, ProcessorError, "has a `yield`"),
        (
            {"processor": lambda batch, checkpointer, more: None},
            ProcessorError,
            "takes 3 arguments",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_begins(
    spark: Any, given: dict[str, Any], kind: type[Exception], match: str
) -> None:
    before = threads()
    with pytest.raises(kind, match=match):
        make(spark, **given)
    assert threads() <= before
    assert not spark.jobs


def test_without_the_package_for_certificates_nothing_is_submitted(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threads()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(FleetError, match=r"pip install 'sparkinesis\[spark\]'"):
        make(spark)
    assert threads() <= before
    assert not spark.jobs


def test_a_fleet_whose_thread_cannot_begin_leaves_nothing_open(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as listener:
        options = FleetOptions(port=port_of(listener), lost_after=5)

    def start(thread: threading.Thread) -> None:
        if thread.name.endswith("-fleet"):
            raise RuntimeError("can't start new thread")
        real_start(thread)

    real_start = threading.Thread.start
    with monkeypatch.context() as within:
        within.setattr(threading.Thread, "start", start)
        Tallies.opened.clear()
        with pytest.raises(RuntimeError, match="new thread"):
            make(spark, 1, options, metrics=(Tallies(),))
        assert Tallies.opened[0][1].closed.is_set()
    make(spark, 1, options).shutdown()  # the port is free


def test_a_shutdown_before_any_worker_has_come(spark: Any) -> None:
    fleet = make(spark, 2)
    spark.wait_for_jobs(1)
    assert fleet.status().wanted == 2
    assert fleet.shutdown()
    assert fleet.status().state is FleetState.ENDED
    assert fleet.await_termination(0)
    with pytest.raises(FleetError, match="ended"):
        fleet.scale(3)
    assert fleet.shutdown(), "once more does no harm"


def consume(record: Any) -> None: ...


def test_workers_of_a_queue_have_time_for_their_last_acknowledgements(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, queue = Clock(), QueueApplication("orders", consume, "us-east-1", name="shop")
    fleet = Fleet(SupervisedQueue.of(queue), spark, 1, OPTIONS, clock)
    spark.wait_for_jobs(1)
    assert spark.description == "shop on queue orders"
    assert fleet.application == queue
    tell(fleet, hello(), Report((), 0, is_running=True))
    fleet.request_shutdown(2.0)
    eventually(lambda: fleet._supervisor._state.abandon_at == 2.0 + 10.0 + OPTIONS.lost_after)
    assert spark.cancels == 0
    clock.now += 12.0 + OPTIONS.lost_after
    eventually(lambda: spark.cancels)
    waits: list[float] = []
    monkeypatch.setattr(fleet, "_wait", waits.append)
    fleet.shutdown(2.0)
    assert waits == [2.0 + 10.0 + 2 * OPTIONS.lost_after], "until all jobs are cancelled"


def test_a_shutdown_faster_than_spark_cancels_the_job_once_it_is_known(spark: Any) -> None:
    spark.is_slow = True
    fleet = make(spark)
    assert fleet.shutdown()
    assert spark.cancels >= 2, "the first was in vain"


def test_fleets_of_one_application_do_not_cancel_each_other(spark: Any) -> None:
    first, second = make(spark), make(spark)
    spark.wait_for_jobs(2)
    second.shutdown()
    assert second.status().state is FleetState.ENDED
    assert sum(cancelled.is_set() for cancelled in spark.jobs.values()) == 1
    assert first.status().state is FleetState.RUNNING
    first.shutdown()


def test_a_job_that_cannot_be_submitted_as_the_program_ends_ends_no_fleet(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.12 on, no thread can be started during interpreter shutdown."""

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("sparkinesis app-") and not thread.name.endswith("-fleet"):
            tried.set()
            raise RuntimeError("can't create new thread at interpreter shutdown")
        real_start(thread)

    real_start, tried = threading.Thread.start, threading.Event()
    monkeypatch.setattr(threading.Thread, "start", start)
    fleet = make(spark)
    assert tried.wait(PATIENCE)
    fleet.shutdown()
    assert fleet.status().state is FleetState.FAILED
    with pytest.raises(FleetError, match="interpreter shutdown"):
        fleet.await_termination(PATIENCE)


def mistake(*_: object) -> None:
    raise KeyError("a mistake")


@pytest.mark.parametrize(
    ("whose", "name"), [(Supervisor, "_send_heartbeat"), (GatheredReports, "status")]
)
def test_an_error_of_the_fleets_own_ends_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch, whose: type, name: str
) -> None:
    """Also one for which no status can be made any more."""
    fleet = make(spark)
    monkeypatch.setattr(whose, name, mistake)
    with pytest.raises(FleetError, match="a mistake"):
        fleet.await_termination(PATIENCE)
    assert fleet.status().state is FleetState.FAILED
    assert not fleet.shutdown()
    fleet._thread.join(PATIENCE)
    launcher(fleet)._control.send(Ping())  # to nobody


@pytest.mark.parametrize("how", [True, ConnectionRefusedError("the JVM is dead"), None])
def test_a_session_that_was_stopped_ends_the_fleet(spark: Any, how: Any) -> None:
    fleet = make(spark)
    spark.wait_for_jobs(1)
    supervisor = fleet._supervisor  # from here on, jobs are run again
    state = supervisor._state
    supervisor._state = replace(state, roster=replace(state.roster, has_started=True))
    if how is None:
        spark._jsc = None  # as SparkContext.stop() leaves it
    else:
        spark.is_stopped = how
    spark.end_jobs()
    with pytest.raises(FleetError, match=r"shutdown\(\) before spark.stop\(\)"):
        fleet.await_termination(PATIENCE)
    assert len(spark.jobs) == 1, "it was not submitted again"
    assert "spark.stop()" in fleet.status().notes[-1]


def test_what_keeps_the_first_job_from_running_is_noted_with_advice(spark: Any) -> None:
    spark.error = (
        "An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "pyspark.zip/pyspark/worker.py", line 1, in main\n'
        "ModuleNotFoundError: No module named 'flights.processors'\n SQLSTATE: 38000"
    )
    fleet = make(spark)
    spark.wait_for_jobs(1)
    spark.end_jobs()
    with pytest.raises(FleetError, match=r"'flights.processors'. Executors .*--py-files") as raised:
        fleet.await_termination(PATIENCE)
    assert "worker.py" not in str(raised.value), "what Spark was doing is no help"
    assert "'flights.processors'. Executors" in fleet.status().notes[-1]
    assert not fleet.shutdown(), "it has not ended gracefully"


def test_a_shutdown_that_nobody_waits_for_ends_though_a_worker_does_not(spark: Any) -> None:
    fleet = make(spark)
    spark.wait_for_jobs(1)
    receive(fleet, "w", hello())
    fleet.request_shutdown(0.2)
    for _ in range(int(PATIENCE / 0.1)):
        receive(fleet, "w", Report((), 0, is_running=True))  # it is alive, and goes on
        if fleet.await_termination(0.1):
            break
    status = fleet.status()
    assert status.state is FleetState.ENDED
    assert "took too long" in status.notes[-1]
    assert not fleet.shutdown(), "not all was graceful"


@pytest.mark.parametrize("raised", [None, ZeroDivisionError()])
def test_a_block_whose_fleet_has_failed_ends_with_an_error(
    spark: Any, raised: Exception | None
) -> None:
    def run() -> None:
        with make(spark) as fleet:
            spark.wait_for_jobs(1)
            tell(fleet, hello(runs=False), Ended(False, "no such stream"))
            if raised is not None:
                raise raised

    with pytest.raises(ZeroDivisionError if raised else FleetError) as caught:
        run()
    assert raised or "no such stream" in str(caught.value)


def status_after(spark: Any, *messages: Any) -> FleetStatus:
    """Return the last status of a fleet that received these messages of a running worker."""
    fleet = make(spark)
    spark.wait_for_jobs(1)
    tell(fleet, hello(), *messages)
    fleet.shutdown()
    return fleet.status()


def test_a_worker_that_was_out_of_time_is_noted(spark: Any) -> None:
    assert "in time" in status_after(spark, Ended(False)).notes[-1]
    assert "has joined" in status_after(spark, Ended(True)).notes[-1]


def test_a_worker_that_ends_leaves_no_doubt_about_the_records(spark: Any) -> None:
    status = status_after(spark, Report((), 7, is_running=True), Ended(True), Disconnected())
    assert (status.records, status.lost_workers) == (7, 0)


@pytest.mark.parametrize(
    ("count", "had"),
    [(0, "listed no shards"), (1, "listed s0: other workers"), (6, "s4 and 1 more: other workers")],
)
def test_a_lost_worker_is_noted_with_its_shards(spark: Any, count: int, had: str) -> None:
    shards = tuple(ShardStatus(f"s{n}", ShardState.PROCESSING, 0, None) for n in range(count))
    status = status_after(spark, Report(shards, 0, is_running=True), Disconnected())
    (lost,) = (note for note in status.notes if note.startswith("Lost worker w on host"))
    assert had in lost
    assert lost.endswith("Records that it processed after that report are not counted")
    assert status.lost_workers == 1
    assert [shard.shard_id for shard in status.unread] == [shard.shard_id for shard in shards]


def test_an_interrupt_while_waiting_cancels_no_jobs(spark: Any) -> None:
    cancelled = []

    def cancel_all_jobs(number: int, _: Any) -> None:
        cancelled.append(number)

    cancel_all_jobs.__module__ = "pyspark.core.context"  # whose handler does so
    before = signal.signal(signal.SIGINT, cancel_all_jobs)
    fleet = make(spark)
    try:
        with (
            patch.object(fleet._supervisor, "wait_until", interrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            fleet.await_termination(PATIENCE)
        assert signal.getsignal(signal.SIGINT) is cancel_all_jobs
    finally:
        signal.signal(signal.SIGINT, before)
        fleet.shutdown()
    assert cancelled == []


def interrupt(*_: object) -> None:
    """Press Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def test_at_exit_a_fleet_is_shut_down(spark: Any) -> None:
    fleet = make(spark)
    fleet._at_exit()
    assert fleet.status().state is FleetState.ENDED
    assert fleet.await_termination(0)


def test_a_fleet_measures_its_workers_until_it_ends(spark: Any) -> None:
    clock = Clock()
    Tallies.opened.clear()
    measured_one = SupervisedApplication.of(application(metrics=(Tallies(),)))
    fleet = Fleet(measured_one, spark, 2, OPTIONS, clock)
    ((measured, tally),) = Tallies.opened
    assert measured.labels == {"application": "app"}

    def wait_for(wanted: int, running: int, waiting: int) -> None:
        expected = [
            Series("fleet.workers.running", (), running),
            Series("fleet.workers.waiting", (), waiting),
            Series("fleet.workers.wanted", (), wanted),
        ]
        assert fleet._supervisor.wait_until(lambda: gauges() == expected, PATIENCE), gauges()

    def gauges() -> list[Series]:
        return [one for one in tally.series() if "workers" in one.metric]

    spark.wait_for_jobs(2)
    wait_for(wanted=2, running=0, waiting=2)
    for worker, slot in (("a", 0), ("b", 1)):
        tell(fleet, hello(worker, slot, slot + 1), Report((), 0, is_running=True))
    wait_for(wanted=2, running=2, waiting=0)
    assert counted(tally, FLEET_RESTARTS) == {}
    receive(fleet, "b", Ended(was_graceful=False, error="out of luck"))
    wait_for(wanted=2, running=1, waiting=0)
    clock.now += 2 * OPTIONS.first_backoff
    spark.wait_for_jobs(3)
    assert counted(tally, FLEET_RESTARTS) == {(): 1}
    wait_for(wanted=2, running=1, waiting=1)
    assert not tally.closed.is_set()
    clock.run()
    fleet.shutdown(0)
    assert tally.closed.wait(PATIENCE)
