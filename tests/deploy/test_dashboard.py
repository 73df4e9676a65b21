"""Grafana's dashboard: made of the catalogue, by the schema of Grafana's library, with queries that
Prometheus understands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.names import NAMES, named
from tests.deploy.promtool import NEEDS_PROMTOOL, promtool

PATH = Path(__file__).parents[2] / "deploy" / "grafana" / "sparkinesis.json"
BOARD = json.loads(PATH.read_text())
CHARTS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
LIBRARY = "grafana_foundation_sdk"


def expressions() -> list[str]:
    return [target["expr"] for chart in CHARTS for target in chart["targets"]]


def test_the_file_is_what_the_script_makes() -> None:
    pytest.importorskip(LIBRARY, reason=f"{LIBRARY} needs Python 3.11")
    from deploy.dashboard import dashboard  # noqa: PLC0415

    assert dashboard() == PATH.read_text(), "run python -m deploy"


def test_it_keeps_grafanas_schema() -> None:
    """Its library drops what it does not know, and refuses other types."""
    pytest.importorskip(LIBRARY, reason=f"{LIBRARY} needs Python 3.11")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

    register_default_plugins()
    read = Dashboard.from_json(json.loads(PATH.read_text()))
    written = json.loads(json.dumps(read, cls=JSONEncoder))
    for panel in written["panels"]:
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"].pop("custom") == {}
    assert written == BOARD


def test_every_metric_exists() -> None:
    assert named(PATH.read_text()) <= NAMES
    assert all(named(text) for text in expressions())


def test_each_row_is_there() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        *("Lag", "Throughput", "Failures", "Leases", "Calls", "Fleets", "Queries"),
        "Queues",
    ]


def test_charts_do_not_overlap_and_have_numbers_of_their_own() -> None:
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at.get("h", 1))}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_variables_choose_in_every_chart_that_has_the_label() -> None:
    names = {one["name"] for one in BOARD["templating"]["list"]}
    assert names == {"datasource", "application", "stream", "query", "queue"}
    used = {name for text in expressions() for name in re.findall(r'=~"\$(\w+)"', text)}
    assert used == names - {"datasource"}
    for text in expressions():
        assert ('query=~"$query"' in text) != ('application=~"$application"' in text), text


@NEEDS_PROMTOOL
def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    def rule(number: int, text: str) -> dict[str, Any]:
        for variable, value in (("$__rate_interval", "5m"), ("$application", ".*")):
            text = text.replace(variable, value)
        return {"record": f"query:{number}", "expr": text}

    found = [rule(number, text) for number, text in enumerate(expressions())]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": found}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", path)
