"""The command itself."""

from __future__ import annotations

import re

from typer.testing import CliRunner

import sparkinesis
from sparkinesis.cli.app import app


def test_the_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", sparkinesis.__version__)
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"sparkinesis {sparkinesis.__version__}\n")


def test_help_names_the_commands_and_the_version() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "A Kinesis Client Library for PySpark." in result.stdout
    for name in (
        "local",
        "kclpy",
        "leases",
        "reset",
        "top",
        "dead-letters",
        "compile-pyspark",
        "--version",
    ):
        assert name in result.stdout
