"""Alarms of CloudWatch: the files are those of the table, and as PutMetricAlarm takes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.validate import ParamValidator

from deploy.alarms import ALARMS, Alarm, document

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "cloudwatch"


def test_the_files_are_what_the_script_makes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy", "--to", str(tmp_path), "--only", "alarms"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "cloudwatch").iterdir()}
    told = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert made == told, "run python -m deploy --only alarms"
    assert made.keys() == {f"{alarm.name}.json" for alarm in ALARMS}


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_cloudwatch_takes_an_alarm(alarm: Alarm) -> None:
    given: dict[str, Any] = json.loads(document(alarm))
    model = boto3.client("cloudwatch", region_name="eu-west-1").meta.service_model
    shape = model.operation_model("PutMetricAlarm").input_shape
    assert not ParamValidator().validate(given, shape).has_errors()
    assert shape.members["ComparisonOperator"].enum.count(given["ComparisonOperator"]) == 1
    assert set(given) <= set(shape.members)


def test_an_alarm_stays_while_nothing_is_published() -> None:
    """A queue without records to receive has no values after some hours, dead letters or not."""
    assert {json.loads(document(alarm))["TreatMissingData"] for alarm in ALARMS} == {"ignore"}


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_each_alarm_is_on_the_page(alarm: Alarm) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    assert f"[{alarm.name}.json](../deploy/cloudwatch/{alarm.name}.json)" in page
    assert f"`{alarm.metric}`" in page
