from __future__ import annotations

import json
import sys

import pytest

from sparkinesis.metrics.health.pages import pages
from sparkinesis.metrics.health.server import HttpRequest


def test_without_the_extra_metrics_are_not_implemented_and_the_rest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = pages(live=tuple, ready=tuple, status=dict, groups=tuple)
    answer = found["/metrics"](HttpRequest())
    assert answer.status == 501
    assert "sparkinesis[prometheus]" in json.loads(answer.body)["error"]
    assert found["/livez"](HttpRequest()).status == 200
