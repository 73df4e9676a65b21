"""The cost model of docs/scale.md: its formulas, and its page's tables."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.cost_model import (
    MEASURED,
    Application,
    Query,
    Quota,
    quotas,
)
from benchmarks.scale import print_model
from sparkinesis.worker.options import WorkerOptions
from tests.documents import ROOT

SIMPLE = replace(MEASURED, row_bytes=1_024, row_cpu=0.001, call_cpu=0.01, renewal_cpu=0.002)
AT_12 = WorkerOptions(failover_time=12.0, idle_time=2.0)  # renews each 3.975 s, reads each 1.9875 s


def application(shards: int = 1_000, workers: int = 10) -> Application:
    return Application(shards, workers, AT_12, measured=SIMPLE)


def test_a_renewal_is_a_write_unit_and_25_share_a_call() -> None:
    assert application().renewal_calls == pytest.approx(10 * 4 / 3.975)
    assert application(26, 1).renewal_calls == pytest.approx(2 / 3.975)
    assert application().write_units == pytest.approx(1_000 / 3.975)
    larger = replace(application(), measured=replace(SIMPLE, row_bytes=1_025))
    assert larger.write_units == pytest.approx(2 * 1_000 / 3.975)
    with_checkpoints = replace(application(), checkpoints=0.5)
    assert with_checkpoints.write_units == pytest.approx(1_000 / 3.975 + 500)


def test_each_worker_reads_the_whole_table_as_often_as_it_renews() -> None:
    assert application().scan_calls == pytest.approx(10 / 3.975)
    assert application(1_025).scan_calls == pytest.approx(10 * 2 / 3.975)
    assert application().read_units == pytest.approx(10 * 250 / 2 / 3.975)
    assert application(workers=1).scan_calls == pytest.approx(1 / 7.95), "it is alone"
    assert application(workers=1).table_cpu == pytest.approx(1_000 * 0.001 / 7.95)


def test_with_a_leader_most_workers_read_their_own_rows() -> None:
    led = replace(AT_12, balance="load")
    many = Application(1_000, 13, led, measured=SIMPLE)
    assert many.scan_calls == pytest.approx(3 / 3.975 + 10 / 300)
    own = math.ceil(77 * 110 / 4096) / 2 + 2.5
    assert many.read_units == pytest.approx(many.scan_calls * 125 + 10 * own / 3.975)
    assert Application(99, 13, led).partial_readers == 0, "a small table is read whole"
    assert Application(1_000, 3, led).partial_readers == 0
    assert Application(1_000, 13).partial_readers == 0


def test_quotas_that_an_application_hits_are_named() -> None:
    def hit(shards: int, workers: int) -> list[str]:
        return [quota.name for quota in quotas(Application(shards, workers)) if quota.is_hit]

    assert hit(1_000, 10) == []
    assert hit(10_000, 100) == []
    assert hit(100_000, 10) == ["shards of an account"]
    assert hit(100_000, 1_000) == ["shards of an account", "read units a second of a table"]
    assert [Quota("calls", 5, used).is_hit for used in (4.9, 5.0, 5.1)] == [False, False, True]


def test_a_plan_takes_the_time_of_its_calls_or_that_of_one_core() -> None:
    query = Query(6_400, latency=0.1, measured=replace(MEASURED, call_cpu=0.001))
    assert query.calls == 6_400
    assert query.first_calls == 2 * 6_400 + 7
    assert query.cpu == pytest.approx(6.4)
    assert query.seconds == pytest.approx(10.0), "64 threads, 100 calls each"
    assert replace(query, latency=0.001).seconds == pytest.approx(6.4)


def test_the_page_holds_the_models_tables() -> None:
    out = io.StringIO()
    print_model(Console(file=out, width=200))
    rows = [
        [cell.strip() for cell in line.strip("│┃ \n").replace("┃", "│").split("│")]
        for line in out.getvalue().splitlines()
        if "│" in line or "┃" in line
    ]
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    missing = [row for row in rows if f"| {' | '.join(row)} |" not in page and row[0]]
    assert len(rows) > 15
    assert missing == []
