"""A system that fails costs the others no measurement, no span, and the caller meets no error."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis import OptionError
from sparkinesis.metrics.catalogue import PROCESS_DURATION, RECORDS_PROCESSED
from sparkinesis.metrics.metric import Measured, Scope
from sparkinesis.metrics.metrics import (
    NO_TRACING,
    OFF,
    AllMetrics,
    Metrics,
    NoTracing,
    measured,
    metrics_of,
    tracing_of,
)
from sparkinesis.metrics.tally import Tally
from tests.tallies import Raising


class Closing(Tally):
    """An exporter of metrics that note in which thread they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[str] = []

    def open(self, measured: Measured) -> Metrics:
        del measured
        return self

    def close(self) -> None:
        self.closed.append(threading.current_thread().name)


def test_a_broken_system_harms_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    both = AllMetrics([Raising(), tally])
    for _ in range(3):
        both.add(RECORDS_PROCESSED, ("s", "shard"), 2)
        both.observe(PROCESS_DURATION, ("s", "shard", "ok"), 0.5)
    both.watch(list)()
    both.close()
    assert [one.metric for one in tally.series()] == [
        "process.records.duration",
        "records.processed",
    ]
    assert tally.series()[1].value == 6
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "Raising could not take a measurement, which is lost"
    ] * 2, "one line for each type of error"


def test_without_exporters_nothing_is_measured() -> None:
    assert metrics_of((), Measured.worker("app", "worker")) is OFF
    assert OFF.watch(list)() is None


def test_an_exporter_is_told_what_is_measured() -> None:
    opened: list[Measured] = []

    class Exporter:
        def open(self, measured: Measured) -> Metrics:
            opened.append(measured)
            return Tally()

    for each in (Measured.worker("app", "w"), Measured.fleet("app"), Measured.query("flights")):
        metrics_of((Exporter(),), each)
    assert [one.labels for one in opened] == [
        {"application": "app", "worker": "w"},
        {"application": "app"},
        {"query": "flights"},
    ]
    assert [one.scope for one in opened] == [Scope.WORKER, Scope.FLEET, Scope.QUERY]


def test_a_system_that_does_not_close_holds_up_the_end_for_a_few_seconds_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hang, closing = threading.Event(), Closing()

    class Hanging(Tally):
        def close(self) -> None:
            hang.wait()

    times = iter([0.0, 0.0, 5.0])
    metrics = AllMetrics([closing, Hanging()], clock=lambda: next(times))
    metrics.close()
    hang.set()
    assert "Hanging has not published its last metrics within 5 s" in caplog.text
    assert len(closing.closed) == 1


def test_a_system_is_closed_even_when_no_thread_begins_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the end of the interpreter, as a fleet meets it."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    closing = Closing()
    both = AllMetrics([Raising(), closing])
    monkeypatch.setattr(threading.Thread, "start", start)
    both.close()
    assert closing.closed == [threading.current_thread().name]


def test_an_exporter_that_returns_no_metrics_is_an_error_that_names_it() -> None:
    class Forgetful:
        def open(self, measured: Measured) -> Metrics:
            return None  # type: ignore[return-value]

    with pytest.raises(OptionError, match=r"Forgetful.open returned None, which has no method add"):
        metrics_of([Forgetful()], Measured.worker("app", "w"))


def test_an_exporter_that_cannot_be_opened_leaves_none_open() -> None:
    class Refusing:
        def open(self, measured: Measured) -> Metrics:
            raise OSError(f"no connection for {measured.labels}")

    opened, own = Closing(), Closing()
    with pytest.raises(OSError, match="no connection"):
        metrics_of([opened, Refusing()], Measured.worker("app", "w"), own)
    assert (len(opened.closed), own.closed) == (1, [])


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from sparkinesis import OptionError
from sparkinesis.metrics import OpenTelemetryMetrics, prometheus
from sparkinesis.metrics.metric import Measured
try:
    prometheus.exposition([], "")
    OpenTelemetryMetrics().open(Measured.worker("app", "w"))
except OptionError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("library", "extra"), [("prometheus_client", "prometheus"), ("opentelemetry", "otel")]
)
def test_without_its_extra_a_system_names_it(library: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, library], capture_output=True, text=True, check=True
    )
    assert f'pip install "sparkinesis[{extra}]"' in done.stdout


class Seen(list[tuple[str, float]]):
    """What was observed, by a clock that goes on by one second each time somebody asks."""

    def run(self, function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
        observe = lambda result, seconds: self.append((result, seconds))  # noqa: E731
        return measured(function, itertools.count().__next__, observe, **given)


def test_each_run_is_measured() -> None:
    seen = Seen()
    run = seen.run(lambda number, *, factor: number * factor)
    assert [run(2, factor=3), run(5, factor=7)] == [6, 35]
    seen.run(lambda: 7, result=lambda value: f"{value} of 9")()
    assert seen == [("ok", 1), ("ok", 1), ("7 of 9", 1)]


def test_an_error_is_measured_and_raised_and_the_end_of_the_program_is_no_result() -> None:
    seen = Seen()

    def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("as it was"), KeyboardInterrupt()):
        for given in ({}, {"result_of": lambda error: type(error).__name__}):
            with pytest.raises(type(error)) as raised:
                seen.run(fail, **given)(error)
            assert raised.value is error
    assert seen == [("failed", 1), ("ValueError", 1)]


class TracedTally(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.tracing = NoTracing()


def test_the_first_system_that_opens_spans_opens_them() -> None:
    assert tracing_of(OFF) is NO_TRACING
    assert tracing_of(AllMetrics([Tally()])) is NO_TRACING
    first, second = TracedTally(), TracedTally()
    assert tracing_of(AllMetrics([Tally(), first, second])) is first.tracing


def test_a_batch_that_nobody_traces_is_not_looked_at() -> None:
    with NO_TRACING.process("s", "shardId-0", extent=lambda: 1 / 0):  # type: ignore[arg-type, return-value]
        pass
