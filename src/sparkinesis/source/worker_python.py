"""Checks that Spark's Python workers, on a local master, run a Python that has this package.

Without PYSPARK_PYTHON the workers run ``python3`` of the PATH. That is another Python if the
program runs in a virtual environment that is not activated, and the query then fails with "No
module named 'sparkinesis'" in the midst of Spark's own frames.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ABSENT = 3
_PROBE = (
    "import importlib.util, sys; "
    f"sys.exit(0 if importlib.util.find_spec('sparkinesis') else {_ABSENT})"
)
_TIMEOUT = 30
"""Seconds; an interpreter starts within one."""


def check_worker_python(spark: SparkSession) -> None:
    """Raise `OptionError` if the workers' Python lacks sparkinesis. On a local master only."""
    # A session of Spark Connect has no context; its server says where the workers run.
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None or not str(context.master).startswith("local"):
        return
    is_shipped = bool(context.getConf().get("spark.submit.pyFiles") or context._python_includes)
    problem = None if is_shipped else problem_of(context.pythonExec, sys.executable)
    if problem is not None:
        raise OptionError(problem)


def problem_of(command: str, this_python: str) -> str | None:
    """Return what is wrong with ``command``, which starts the workers' Python; None if nothing."""
    found = shutil.which(command)
    if found is not None and (_is_same(found, this_python) or _has_package(found)):
        return None
    why = "which does not exist" if found is None else "which has no package sparkinesis"
    source = (
        "by the environment variable PYSPARK_PYTHON"
        if os.environ.get("PYSPARK_PYTHON") == command
        else f"{command} of the PATH, because PYSPARK_PYTHON was not set"
    )
    return (
        f"Spark's Python workers would run {found or command} ({source}), {why}. This program runs "
        f"{this_python}. Set the environment variable PYSPARK_PYTHON to {this_python} before the "
        "Spark session is made, for example by sparkinesis.local.use_this_python(), or activate "
        "the virtual environment."
    )


def _is_same(python: str, other: str) -> bool:
    """Return True for two names of one interpreter in one environment, such as python3, python."""
    # The interpreters of two virtual environments may be links to the same file.
    one, two = Path(python), Path(other)
    return one.parent.resolve() == two.parent.resolve() and one.resolve() == two.resolve()


def _has_package(python: str) -> bool:
    """Return False only if the interpreter runs and says that it lacks the package."""
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that Spark would run
            [python, "-c", _PROBE], capture_output=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return True  # Spark's own error says more
    return done.returncode != _ABSENT
