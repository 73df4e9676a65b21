"""Tests of the installed wheel: it is what is imported, it is whole, and its commands start.

`make compat` runs them in each of its environments, and nothing else does: the name is not one that
pytest looks for, because the development environment has the source and no wheel.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points, files
from pathlib import Path

import pytest

import sparkinesis

PACKAGE = Path(sparkinesis.__file__).parent
MODULES = [
    each.name
    for each in pkgutil.walk_packages([str(PACKAGE)], "sparkinesis.")
    if not each.name.endswith("__main__")
]
COMMAND = Path(sys.executable).with_name("sparkinesis")


def test_the_wheel_is_what_is_imported() -> None:
    assert PACKAGE.is_relative_to(sysconfig.get_path("purelib"))


def test_the_wheel_has_every_file_of_the_source() -> None:
    source = Path(__file__).parents[2] / "src"
    there = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert there - {str(path) for path in files("sparkinesis") or []} == set()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_imported(name: str) -> None:
    importlib.import_module(name)


def test_the_public_names_are_there() -> None:
    assert [name for name in sparkinesis.__all__ if not hasattr(sparkinesis, name)] == []


def test_pytest_finds_the_testing_kit() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "sparkinesis"]
    assert found.load()


@pytest.mark.parametrize("command", ["", "leases", "top", "doctor", "local", "exporter", "ui"])
def test_a_command_tells_its_options(command: str) -> None:
    arguments = [str(COMMAND), *command.split(), "--help"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: sparkinesis" in done.stdout
