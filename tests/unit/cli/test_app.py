"""The command itself."""

from __future__ import annotations

import re
import subprocess
import sys

import sparkinesis
from tests.command import call


def test_the_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", sparkinesis.__version__)
    result = call("--version")
    assert (result.returncode, result.stdout) == (0, f"sparkinesis {sparkinesis.__version__}\n")


def test_a_command_starts_without_what_only_some_commands_need() -> None:
    """A shell starts the command for each press of the tab key."""
    heavy = {"botocore", "boto3", "pyarrow", "numpy", "pyspark", "google.protobuf", "bokeh", "moto"}
    code = "import sys, sparkinesis.cli.app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert heavy & set(loaded.stdout.split()) == set()
