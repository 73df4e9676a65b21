"""The command itself."""

from __future__ import annotations

import re

import sparkinesis
from tests.command import call


def test_the_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", sparkinesis.__version__)
    result = call("--version")
    assert (result.returncode, result.stdout) == (0, f"sparkinesis {sparkinesis.__version__}\n")
