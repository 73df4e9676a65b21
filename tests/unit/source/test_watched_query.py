"""The metrics of a query through its batches, its restarts and its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from sparkinesis.metrics.catalogue import (
    QUERY_BATCH_DURATION,
    QUERY_BYTES,
    QUERY_DATA_LOSS,
    QUERY_FAILURES,
    QUERY_LAG,
    QUERY_LAG_MAX,
    QUERY_LAG_MEAN,
    QUERY_LATE_ROWS,
    QUERY_LIMIT_FILLED,
    QUERY_PLANNING_DURATION,
    QUERY_PROBES,
    QUERY_PROGRESS_AGE,
    QUERY_RANGES,
    QUERY_ROWS,
    QUERY_RUNNING,
    QUERY_THROTTLED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.tally import Distribution, Tally
from sparkinesis.source.stream_report import LagReport, SampleReport, StreamReport
from sparkinesis.source.watched_query import (
    SourceReading,
    WatchedQuery,
    error_class,
    kinesis_sources,
    lags_of,
    late_rows,
    our_error,
)
from sparkinesis.status import StreamLag

END = {"s": {"shardId-000000000000": "49680498019081662356985031712474274623862286678027665426@1"}}


@dataclass
class Source:
    endOffset: Any = None  # noqa: N815 - Spark's name
    latestOffset: Any = None  # noqa: N815 - Spark's name
    numInputRows: int = 0  # noqa: N815 - Spark's name


@dataclass
class Operator:
    numRowsDroppedByWatermark: int  # noqa: N815 - Spark's name


def reported(**reports: StreamReport) -> str:
    return json.dumps({stream: report.as_json() for stream, report in reports.items()})


def behind(ms: int) -> StreamReport:
    return StreamReport(millis_behind_latest=LagReport(ms, ms // 2, {"shardId-0": ms}))


@pytest.mark.parametrize("as_text", [True, False], ids=["Spark", "Connect"])
def test_a_source_of_ours_is_read(as_text: bool) -> None:
    end = json.dumps(END) if as_text else END
    (found,) = kinesis_sources([Source(end, reported(s=behind(1000)), 12)])
    assert (found.name, found.rows, dict(found.reports)) == ("s", 12, {"s": behind(1000)})
    assert lags_of([found]) == {"s": StreamLag(1000, 500, {"shardId-0": 1000})}


def test_sources_of_others_are_left_out() -> None:
    others = [
        Source('{"topic":{"0":12}}', '{"topic":{"0":15}}', 3),
        Source("7", "9", 2),
        Source(None, None, 1),
        Source('{"t":{"shardId-000000000000":"elsewhere"}}', "", 1),
        Source("{", "{", 1),
    ]
    assert kinesis_sources(others) == []
    (found,) = kinesis_sources([*others, Source(json.dumps(END), None, 5)])
    assert found.rows == 5


def test_a_batch_that_runs_again_has_rows_and_no_report() -> None:
    (found,) = kinesis_sources([Source(json.dumps(END), "null", 5)])
    assert (found.name, found.rows, dict(found.reports)) == ("s", 5, {})
    assert found.plan_seconds is None
    assert found.bytes_per_row is None


def test_a_source_of_several_streams_is_named_by_all() -> None:
    end = json.dumps({**END, "b": {"*": "TRIM_HORIZON"}})
    (found,) = kinesis_sources([Source(end, reported(s=behind(1)), 5)])
    assert found.name == "b,s"


def test_the_size_of_a_row_is_the_mean_of_all_samples() -> None:
    one = StreamReport(millis_behind_latest=LagReport(0, 0), sample=SampleReport(1, 100))
    many = StreamReport(
        millis_behind_latest=LagReport(0, 0), plan_millis=250, sample=SampleReport(3, 100)
    )
    (found,) = kinesis_sources([Source(None, reported(a=one, b=many, c=behind(0)), 5)])
    assert found.bytes_per_row == 50
    assert found.plan_seconds == 0.25


def test_of_two_sources_of_a_stream_the_worst_lag_counts() -> None:
    sources = kinesis_sources([Source(None, reported(s=behind(ms))) for ms in (5, 900, 70)])
    assert lags_of(sources)["s"].max_ms == 900


def test_late_rows_are_those_of_all_operators() -> None:
    assert late_rows([Operator(3), Operator(0), Operator(4)]) == 7


@pytest.mark.parametrize(
    ("text", "spark_class", "error"),
    [
        (
            "Failed when ...: sparkinesis.errors.DataLossError: the position",
            "PYTHON_X",
            "DataLossError",
        ),
        ("... sparkinesis.errors.ShardNotFoundError: shard", "PYTHON_X", "DataLossError"),
        ("... sparkinesis.errors.AccessDeniedError: no", None, "AccessDeniedError"),
        ("java.lang.ArithmeticException: / by zero", "DIVIDE_BY_ZERO", "DIVIDE_BY_ZERO"),
        ("java.lang.IllegalStateException", None, "other"),
    ],
)
def test_an_error_has_a_class(text: str, spark_class: str | None, error: str) -> None:
    assert error_class(text, spark_class) == error
    assert (our_error(text) is not None) == ("sparkinesis." in text)


def reading(
    rows: int = 0, lag_ms: int = 0, losses: int = 0, plan_ms: int | None = None, **given: Any
) -> list[SourceReading]:
    lag = LagReport(lag_ms, lag_ms // 2, {"shardId-0": lag_ms})
    report = StreamReport(
        millis_behind_latest=lag, data_losses=losses, plan_millis=plan_ms, **given
    )
    return [SourceReading(("s",), rows, {"s": report})]


REPLAY = [SourceReading(("s",), 4, {})]


class Watched(WatchedQuery):
    """A query with the clock and the metrics that it has."""

    def __init__(self) -> None:
        self.now, self.tally = 100.0, Tally()
        super().__init__(self.tally, lambda: self.now)

    def values(self, metric: Metric) -> dict[tuple[str, ...], float | Distribution]:
        return {one.labels: one.value for one in self.tally.series() if one.metric == metric.name}


@pytest.fixture
def query() -> Watched:
    return Watched()


def test_batches_are_counted(query: Watched) -> None:
    query.count(reading(10, sample=SampleReport(2, 100), plan_ms=250), 1.5, 0)
    query.count(reading(5, sample=SampleReport(1, 10)), 0.5, 3)
    assert query.values(QUERY_ROWS) == {("s",): 15}
    assert query.values(QUERY_BYTES) == {("s",): 10 * 50 + 5 * 10}
    assert query.values(QUERY_LATE_ROWS) == {(): 3}
    batches, plans = query.values(QUERY_BATCH_DURATION), query.values(QUERY_PLANNING_DURATION)
    assert isinstance(took := batches[()], Distribution)
    assert (took.count, took.sum) == (2, 2.0)
    assert isinstance(planned := plans["s",], Distribution)
    assert (planned.count, planned.sum) == (1, 0.25), "the other batch was not planned"


def test_a_batch_that_runs_again_has_rows_of_the_size_of_those_before(query: Watched) -> None:
    query.count(REPLAY, 1.0, 0)
    assert query.values(QUERY_ROWS) == {("s",): 4}
    assert query.values(QUERY_BYTES) == {}, "not known"
    query.count(reading(1, sample=SampleReport(1, 100)), 1.0, 0)
    query.count(REPLAY, 1.0, 0)
    assert query.values(QUERY_BYTES) == {("s",): 100 + 400}


def test_calls_of_plans_are_counted_once_whatever_progress_is_missed(query: Watched) -> None:
    for probes, throttled in ((3, 0), (3, 0), (10, 2)):
        query.read("one", reading(probes=probes, throttled=throttled))
    query.read("two", reading(probes=4, throttled=1))
    assert query.values(QUERY_PROBES) == {("s",): 14}
    assert query.values(QUERY_THROTTLED) == {("s",): 3}


def test_ranges_are_those_of_batches(query: Watched) -> None:
    query.read("run", reading(ranges=2))
    assert query.values(QUERY_RANGES) == {}, "Spark has not read the batch yet"
    query.count(reading(10, ranges=2), 1.0, 0)
    query.count(reading(), 1.0, 0)
    query.count(reading(10, ranges=3), 1.0, 0)
    assert query.values(QUERY_RANGES) == {("s",): 5}


def test_the_share_of_the_limit_is_that_of_the_last_plan(query: Watched) -> None:
    query.read("run", reading())
    assert query.values(QUERY_LIMIT_FILLED) == {}, "there is no limit"
    query.read("run", reading(filled=0.97))
    query.read("run", REPLAY)
    assert query.values(QUERY_LIMIT_FILLED) == {("s",): 0.97}
    query.read("run", reading(filled=0.0))
    assert query.values(QUERY_LIMIT_FILLED) == {("s",): 0.0}
    query.end("run", None)
    assert query.values(QUERY_LIMIT_FILLED) == {}


def test_a_restart_counts_its_own_losses(query: Watched) -> None:
    query.read("one", reading(losses=3))
    query.end("one", "DataLossError")
    query.read("two", reading(losses=1))
    query.read("three", reading(losses=2))  # the end of "two" was missed
    assert query.values(QUERY_DATA_LOSS) == {("s",): 6}


def test_two_sources_of_one_stream_count_their_losses_each(query: Watched) -> None:
    query.read("run", [*reading(losses=2), *reading(losses=1)])
    for _ in range(2):
        query.read("run", [*reading(losses=2), *reading(losses=2)])
    assert query.values(QUERY_DATA_LOSS) == {("s",): 4}


def test_the_lag_is_that_of_the_last_progress(query: Watched) -> None:
    assert not query.values(QUERY_LAG)
    query.read("run", reading(lag_ms=90_000))
    query.read("run", reading(lag_ms=3000))
    assert query.values(QUERY_LAG) == {("s", "shardId-0"): 3.0}
    assert query.values(QUERY_LAG_MAX) == {("s",): 3.0}
    assert query.values(QUERY_LAG_MEAN) == {("s",): 1.5}
    query.read("run", REPLAY)
    assert query.values(QUERY_LAG_MAX) == {("s",): 3.0}, "a batch without a plan tells no lag"


def test_an_ended_query_has_no_lag_and_keeps_its_counters(query: Watched) -> None:
    query.read("run", reading(lag_ms=9))
    query.count(reading(10), 1.0, 0)
    assert query.values(QUERY_RUNNING) == {(): 1.0}
    query.end("run", None)
    assert query.values(QUERY_RUNNING) == {(): 0.0}
    for metric in (QUERY_LAG, QUERY_LAG_MAX, QUERY_LAG_MEAN, QUERY_PROGRESS_AGE, QUERY_FAILURES):
        assert query.values(metric) == {}, metric.name
    assert query.values(QUERY_ROWS) == {("s",): 10}


def test_a_query_runs_from_its_start_and_not_from_its_first_report(query: Watched) -> None:
    query.start("one")
    assert query.values(QUERY_RUNNING) == {(): 1.0}
    query.read("one", reading())
    query.end("one", None)
    assert not query.is_running
    query.now += 60.0
    query.start("two")
    assert query.values(QUERY_RUNNING) == {(): 1.0}
    assert query.values(QUERY_PROGRESS_AGE) == {(): 0.0}
    query.end("two", "OffsetError")
    assert query.values(QUERY_RUNNING) == {(): 0.0}


@pytest.mark.parametrize("is_seen", [False, True])
def test_an_end_that_is_told_late_does_not_end_the_next_run(
    query: Watched, *, is_seen: bool
) -> None:
    query.read("one", reading(probes=5))
    query.start("two")
    if is_seen:
        query.read("two", reading(probes=3, lag_ms=2000))
    query.end("one", None)
    assert query.values(QUERY_RUNNING) == {(): 1.0}
    query.read("two", reading(probes=4, lag_ms=2000))
    assert query.values(QUERY_PROBES) == {("s",): 9}, "nothing counts twice"
    assert query.values(QUERY_LAG_MAX) == {("s",): 2.0}
    query.end("two", None)
    assert query.values(QUERY_RUNNING) == {(): 0.0}


def test_a_failure_is_counted_by_its_error(query: Watched) -> None:
    query.end("run", "DataLossError")
    query.read("run", reading())
    query.end("run", "DataLossError")
    assert query.values(QUERY_FAILURES) == {("DataLossError",): 2}


def test_a_query_that_stands_still_shows_its_age(query: Watched) -> None:
    query.read("run", reading())
    query.now += 40
    assert query.values(QUERY_PROGRESS_AGE) == {(): 40.0}
    query.read("run", reading())
    assert query.values(QUERY_PROGRESS_AGE) == {(): 0.0}


def test_a_closed_query_has_no_gauges(query: Watched) -> None:
    query.read("run", reading(10))
    query.close()
    assert query.values(QUERY_RUNNING) == {}
