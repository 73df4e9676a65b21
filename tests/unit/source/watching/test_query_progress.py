"""What a progress tells of Kinesis sources, among sources of others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from sparkinesis.source.stream_report import LagReport, SampleReport, StreamReport
from sparkinesis.source.watching.query_progress import (
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
