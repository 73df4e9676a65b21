"""The Python of Spark's workers: noticed before a query fails for want of the package."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import sparkinesis
from sparkinesis.errors import OptionError
from sparkinesis.source.worker_python import check_worker_python, problem_of


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of a virtual environment without packages."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, symlinks=True, with_pip=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.chdir(folder)
        yield folder / "bin" / "python3"


@dataclass
class Context:
    """What the check asks a SparkContext."""

    master: str
    pythonExec: str  # noqa: N815
    conf: dict[str, str] = field(default_factory=dict)
    _python_includes: list[str] = field(default_factory=list)

    def getConf(self) -> dict[str, str]:
        return self.conf


@dataclass
class Session:
    sparkContext: Context  # noqa: N815


def check(context: Context) -> None:
    check_worker_python(cast(Any, Session(context)))


def test_another_python_without_the_package_is_told_with_what_to_set(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(other.parent))
    with pytest.raises(OptionError) as caught:
        check(Context("local[2]", "python3"))
    assert str(caught.value) == (
        f"Spark's Python workers would run {other} (python3 of the PATH, because PYSPARK_PYTHON "
        f"was not set), which has no package sparkinesis. This program runs {sys.executable}. Set "
        f"the environment variable PYSPARK_PYTHON to {sys.executable} before the Spark session is "
        "made, for example by sparkinesis.local.use_this_python(), or activate the virtual "
        "environment."
    )


def test_a_python_of_the_environment_variable_is_named_as_that(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    with pytest.raises(OptionError, match=r"\(by the environment variable PYSPARK_PYTHON\), which"):
        check(Context("local[2]", str(other)))
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    with pytest.raises(OptionError, match=r"run /nowhere/python \(by .*\), which does not exist"):
        check(Context("local", "/nowhere/python"))


def test_a_cluster_and_a_shipped_package_are_not_looked_at(other: Path) -> None:
    check(Context("spark://driver:7077", str(other)))
    check(Context("local[2]", str(other), {"spark.submit.pyFiles": "sparkinesis.zip"}))
    check(Context("local[2]", str(other), _python_includes=["sparkinesis.zip"]))
    check_worker_python(cast(Any, object()))  # of Spark Connect


def test_another_name_of_this_python_is_no_problem() -> None:
    for name in {"python", "python3", Path(sys.executable).name}:
        python = Path(sys.executable).with_name(name)
        if python.exists():
            assert problem_of(str(python), sys.executable) is None


def test_another_python_that_has_the_package_is_no_problem(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem_of(str(other), sys.executable) is not None
    monkeypatch.setenv("PYTHONPATH", str(Path(sparkinesis.__path__[0]).parent))
    assert problem_of(str(other), sys.executable) is None


def test_a_python_that_does_not_run_is_left_to_spark(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert problem_of(str(broken), sys.executable) is None


@pytest.mark.parametrize("already", [None, "/usr/bin/python3"])
def test_use_this_python_sets_the_variable_unless_it_is_set(already: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    if already is not None:
        environment["PYSPARK_PYTHON"] = already
    environment["PYTHONPATH"] = str(Path(sparkinesis.__path__[0]).parent)
    code = (
        "import os; from sparkinesis.local.java import use_this_python; use_this_python(); "
        "print(os.environ['PYSPARK_PYTHON'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (already or sys.executable)
