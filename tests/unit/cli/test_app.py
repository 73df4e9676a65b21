"""The command itself."""

from __future__ import annotations

import re

import sparkinesis
from tests.command import call


def test_the_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", sparkinesis.__version__)
    result = call("--version")
    assert (result.returncode, result.stdout) == (0, f"sparkinesis {sparkinesis.__version__}\n")


def test_help_names_the_commands_and_the_version() -> None:
    result = call("--help")
    assert result.returncode == 0
    assert "A Kinesis Client Library for PySpark." in result.stdout
    names = "local kclpy leases reset top dead-letters compile-pyspark --version"
    assert not [name for name in names.split() if name not in result.stdout]
