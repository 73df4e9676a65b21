"""Packages and programs that some tests need: without them a test is skipped, and says so."""

from __future__ import annotations

import importlib.util
import os

import pytest


def need(*packages: str) -> None:
    """Skip the test where a package is missing, or fail under `make test-lakes`."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            missing(f"{package} is not installed")


def missing(why: str) -> None:
    if os.environ.get("LAKE_TESTS") == "required":
        pytest.fail(f"The lake or database cannot be tested: {why}.")
    pytest.skip(f"THIS LAKE OR DATABASE IS NOT TESTED: {why}; see `make test-lakes`")
