"""A PySpark that is too old, or missing, is told by its version where a user meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sparkinesis

SOURCES = Path(sparkinesis.__file__).parents[1]
REGISTER = "import sparkinesis; sparkinesis.register(None)"
DISCOVER = "from pyspark_sparkinesis import DefaultSource; DefaultSource({})"
"""What Spark does where a query uses a format that nothing has registered."""
EXPECTED = "ImportError: sparkinesis needs PySpark 4.2 or newer; this is 4.1.4"


def said(program: str, folder: Path) -> str:
    """What a program prints whose pyspark is the one in the folder."""
    search = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(SOURCES)!r}]; "
    done = subprocess.run(
        [sys.executable, "-c", search + program], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.fixture
def old_pyspark(tmp_path: Path) -> Path:
    """A package of the layout of PySpark 4.1: it has no admission control of streams."""
    streaming = tmp_path / "pyspark" / "sql" / "streaming"
    streaming.mkdir(parents=True)
    for folder in (streaming, streaming.parent, streaming.parents[1]):
        (folder / "__init__.py").touch()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "4.1.4"\n')
    (tmp_path / "pyspark" / "sql" / "datasource.py").write_text("class DataSource: ...\n")
    return tmp_path


@pytest.mark.parametrize("program", [REGISTER, DISCOVER])
def test_it_is_told_what_is_needed_and_what_is_there(old_pyspark: Path, program: str) -> None:
    assert said(program, old_pyspark).splitlines()[-1] == EXPECTED


def test_a_missing_pyspark_is_told_with_the_extra_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark')\n")
    assert "none is installed: pip install 'sparkinesis[spark]'" in said(REGISTER, tmp_path)
