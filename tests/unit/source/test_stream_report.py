"""What a plan tells in the progress is small, whatever the stream, and is known from others'."""

from __future__ import annotations

import json

import pytest

from sparkinesis.source.stream_report import (
    WORST,
    LagReport,
    SampleReport,
    StreamReport,
    lag_report,
    read_reports,
)


def test_the_lags_of_few_shards_are_all_reported() -> None:
    lags = {"shardId-2": 0, "shardId-1": 900, "shardId-3": 300}
    assert lag_report(lags) == LagReport(
        900, 400, {"shardId-1": 900, "shardId-2": 0, "shardId-3": 300}
    )


def test_a_shard_with_a_lag_comes_before_the_many_without() -> None:
    lags = {f"shardId-{n:03}": 0 for n in range(1000)} | {"shardId-777": 5}
    report = lag_report(lags)
    assert report is not None
    assert report.shards["shardId-777"] == 5
    assert len(report.shards) == WORST


def test_a_report_survives_its_way_through_the_progress() -> None:
    report = StreamReport(
        millis_behind_latest=LagReport(1200, 300, {"shardId-000000000000": 1200}),
        data_losses=2,
        plan_millis=17,
        probes=40,
        throttled=1,
        ranges=2,
        filled=0.25,
        sample=SampleReport(10, 4000),
    )
    text = json.dumps({"flights": report.as_json()})
    assert json.loads(text)["flights"] == {
        "millisBehindLatest": {"max": 1200, "mean": 300, "shards": {"shardId-000000000000": 1200}},
        "dataLosses": 2,
        "planMillis": 17,
        "probes": 40,
        "throttled": 1,
        "ranges": 2,
        "filled": 0.25,
        "sample": {"rows": 10, "bytes": 4000},
    }
    assert read_reports(json.loads(text)) == {"flights": report}


@pytest.mark.parametrize(
    "other",
    [
        None,
        {},
        17,
        "text",
        {"topic": {"0": 12}},
        {"topic": 5},
        {"s": {"shardId-000000000000": "TRIM_HORIZON"}},
        {"s": {"millisBehindLatest": "5"}},
    ],
)
def test_the_latest_offset_of_another_source_is_no_report(other: object) -> None:
    assert read_reports(other) is None


def test_a_report_of_an_older_version_has_no_shards() -> None:
    found = read_reports({"s": {"millisBehindLatest": {"max": 5, "mean": 2}}})
    assert found == {"s": StreamReport(millis_behind_latest=LagReport(5, 2))}
