"""The alerts: made of the catalogue, each shown firing and not firing by Prometheus' own tool."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.queries import by, series
from deploy.rules import Thresholds, alerts, rules
from sparkinesis.metrics.catalogue import CALL_DURATION, LAG, LEASES_HELD
from tests.deploy.names import NAMES, named
from tests.deploy.promtool import NEEDS_PROMTOOL, promtool

FOLDER = Path(__file__).parents[2] / "deploy"
RULES = FOLDER / "prometheus" / "rules.yml"
CASES = FOLDER / "prometheus" / "rules.test.yml"


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    expected: dict[str, set[bool]] = defaultdict(set)
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            expected[one["alertname"]].add(bool(one.get("exp_alerts")))
    assert expected == {f"Sparkinesis{alert.name}": {True, False} for alert in alerts()}


@pytest.mark.parametrize("path", [RULES, CASES], ids=lambda path: path.name)
def test_every_metric_exists(path: Path) -> None:
    found = named(path.read_text())
    assert found
    assert found <= NAMES


def test_thresholds_stand_in_the_rules() -> None:
    limits = Thresholds(
        lag=111,
        checkpoint_age=222,
        processing=333,
        failures=444,
        table=555,
        progress=666,
        redeliveries=777,
    )
    text = rules(limits)
    found = {
        one["alert"]: re.findall(r"> (\d{3})$", one["expr"])
        for one in yaml.safe_load(text)["groups"][0]["rules"]
    }
    assert {name: limits for name, limits in found.items() if limits} == {
        "SparkinesisLagHigh": ["111"],
        "SparkinesisQueryLagHigh": ["111"],
        "SparkinesisShardLagHigh": ["111"],
        "SparkinesisCheckpointOld": ["222"],
        "SparkinesisShardPaused": ["111"],
        "SparkinesisProcessRecordsStuck": ["333"],
        "SparkinesisFailuresRising": ["444"],
        "SparkinesisTableUnseen": ["555"],
        "SparkinesisQueryStuck": ["666"],
        "SparkinesisQueueAgeHigh": ["111"],
        "SparkinesisQueueRefusals": ["444"],
        "SparkinesisQueueRedeliveries": ["777"],
    }


@NEEDS_PROMTOOL
def test_prometheus_takes_the_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)


@NEEDS_PROMTOOL
def test_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)


def test_a_wrong_label_is_an_error() -> None:
    assert series(LAG, shard="~a|b", application="x") == (
        'sparkinesis_lag_seconds{application="x",shard=~"a|b"}'
    )
    wrong: list[Any] = [
        lambda: series(LEASES_HELD, stream="flights"),
        lambda: series(CALL_DURATION, "_count", shard="shards are not told apart"),
        lambda: series(CALL_DURATION),
        lambda: series(LAG, "_count"),
        lambda: by("query", of=LAG),
    ]
    for make in wrong:
        with pytest.raises(ValueError, match=r"^(lag|leases\.held|call\.duration) "):
            make()
