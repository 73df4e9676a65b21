from __future__ import annotations

import json
import sys

import pytest

from sparkinesis.metrics import catalogue
from sparkinesis.metrics.health.pages import pages
from sparkinesis.metrics.health.server import Request
from sparkinesis.metrics.tally import Tally


def test_checks_name_their_reasons_and_metrics_are_prometheus_text() -> None:
    tally = Tally()
    tally.add(catalogue.RECORDS_PROCESSED, ("s", "shard-1"), 3)
    labels = {"application": "app", "worker": "w"}
    found = pages(
        live=tuple,
        ready=lambda: ["no table"],
        status=lambda: {"records": 3},
        groups=lambda: [(labels, tally.series())],
    )
    answers = {path: page(Request()) for path, page in found.items()}
    assert {path: answer.status for path, answer in answers.items()} == {
        "/livez": 200,
        "/readyz": 503,
        "/status": 200,
        "/metrics": 200,
    }
    assert json.loads(answers["/readyz"].body) == {"ready": False, "reasons": ["no table"]}
    assert json.loads(answers["/status"].body) == {"records": 3}
    line = 'sparkinesis_records_processed_total{application="app",stream="s",worker="w"} 3.0'
    assert line in answers["/metrics"].body.decode()


def test_without_the_extra_metrics_are_not_implemented_and_the_rest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = pages(live=tuple, ready=tuple, status=dict, groups=tuple)
    answer = found["/metrics"](Request())
    assert answer.status == 501
    assert "sparkinesis[prometheus]" in json.loads(answer.body)["error"]
    assert found["/livez"](Request()).status == 200
