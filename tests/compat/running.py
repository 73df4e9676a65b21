"""Runs the core of the tests in an environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.compat import building, core, machine
from tests.compat.environments import Environment

PROCESSES = 3
"""Two for Spark, as on two cores, and one for tests that mostly wait."""
SHOWN = ("pyspark", "pandas", "pyarrow", "boto3")


@dataclass(frozen=True)
class Outcome:
    """What came of an environment."""

    environment: Environment
    not_run: str = ""
    """Why nothing was run; empty if something was."""
    versions: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: int = 0
    seconds: int = 0

    @property
    def is_good(self) -> bool:
        return not self.failed and bool(self.passed)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def keep(self) -> None:
        """Store it beside what was run, for pages of later runs."""
        _kept(self.environment).parent.mkdir(parents=True, exist_ok=True)
        _kept(self.environment).write_text(json.dumps(self.as_json()), "utf-8")


def earlier(environment: Environment) -> Outcome:
    """Return what an earlier run has found in the environment."""
    if not _kept(environment).exists():
        return Outcome(environment, not_run="no run has come to it")
    found = json.loads(_kept(environment).read_text("utf-8"))
    return Outcome(**{**found, "environment": environment, "failed": tuple(found["failed"])})


def _kept(environment: Environment) -> Path:
    return building.home(environment) / "outcome.json"


def run(environment: Environment, wheel: Path) -> Outcome:
    """Make the environment, and run the core in it, as a process of low priority."""
    try:
        java = machine.java_home(environment.java, building.home(environment) / "no-java")
        versions = building.build(environment, wheel)
    except machine.NotHereError as error:
        return Outcome(environment, not_run=str(error))
    except building.BuildError as error:
        return Outcome(environment, failed=(f"to be made: {error}",))
    began = time.monotonic()
    report = building.home(environment) / "tests.xml"
    report.unlink(missing_ok=True)
    with (building.home(environment) / "tests.log").open("wb") as log:
        ended = subprocess.run(
            _command(environment, report),
            cwd=building.ROOT,
            env=_variables(environment, java),
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = round(time.monotonic() - began)
    if not report.exists():
        told = f"pytest ended with {ended.returncode}"
        return Outcome(environment, versions=versions, failed=(told,))
    passed, failed, skipped = _counted(report)
    return Outcome(environment, "", versions, passed, failed, skipped, seconds)


def _command(environment: Environment, report: Path) -> list[str]:
    tests = core.listed(core.CORE)
    if environment.has_connect:
        tests += core.listed(core.CONNECT)
    left_out = [f"--deselect={test}" for test in core.listed(core.LEFT_OUT)]
    python = str(building.python(environment))
    return [
        *("nice", "-n", "10", python, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-n", str(PROCESSES), "--dist", "loadscope", "--no-loadscope-reorder"),
        # The tests are named one by one, whatever leaves them out of `make test`.
        *("-m", "not long", "--durations=15", "--tb=short", f"--junitxml={report}"),
        *left_out,
        *tests,
    ]


def _variables(environment: Environment, java: str) -> dict[str, str]:
    """Nothing of the environment in which make runs."""
    dropped = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "SPARK_HOME", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    path = f"{building.python(environment).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "JAVA_HOME": java, "PATH": path}


def _counted(report: Path) -> tuple[int, tuple[str, ...], int]:
    passed, failed, skipped = 0, [], 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, tuple(failed), skipped
