"""The public names: all of them are there, and importing the package costs a query nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sparkinesis


@pytest.mark.parametrize("name", sparkinesis.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(sparkinesis, name).__module__.startswith("sparkinesis")


def test_there_is_no_other() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Scheduler'"):
        sparkinesis.Scheduler  # noqa: B018


def test_importing_the_package_imports_no_record_processors() -> None:
    code = (
        "import sys, sparkinesis; print([m for m in sys.modules if 'boto' in m or 'worker' in m])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert answer.stdout.strip() == b"[]"
