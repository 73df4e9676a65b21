"""Spark's Python: which interpreter its workers run, how a task begins, how a process ends.

Spark runs the data source in Python processes of its own. Without PYSPARK_PYTHON they run
``python3`` of the PATH. That is another Python if the program runs in a virtual environment that is
not activated, and the query then fails with "No module named 'sparkinesis'" in the midst of Spark's
own frames: `check_worker_python` notices it before.

Spark shows an error of these processes in the log and in the exception of the user's program, with
the frames of sparkinesis and of PySpark before the message, twice and three times over. An expected
error names its cause and what to do, and its frames only hide that, so `without_frames` drops them.
Any other error is a bug, and keeps them.
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.public import __version__

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


_exempt_modules: int | None = None
"""The number of modules at the last exemption; None before the first task."""


def begin_task(driver_version: str) -> None:
    """Check the version of the driver, and exempt from collections what earlier tasks have loaded.

    Raises `SparkinesisError` if the versions differ: what the driver sends is no interface.

    PySpark's daemon collects after every task (``pyspark.daemon``), and each collection walks all
    that botocore, pyarrow and the query's own code have loaded: tens of milliseconds. The
    collection before this task has left no garbage to exempt. Does nothing in the first task, and
    in a task before which no module was loaded.
    """
    if driver_version != __version__:
        raise SparkinesisError(
            f"The driver has sparkinesis {driver_version}, and this executor has {__version__} in "
            f"{sys.executable}. Install one version on all machines, or ship it with the program "
            "(--py-files, --archives)."
        )
    global _exempt_modules  # noqa: PLW0603 - of the process
    if _exempt_modules is None:
        _exempt_modules = 0
    elif len(sys.modules) > _exempt_modules:
        gc.freeze()
        _exempt_modules = len(sys.modules)


HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable that ``pyspark.util.handle_worker_exception`` reads when it sends an error."""


@contextmanager
def without_frames() -> Iterator[None]:
    """Let an expected error leave one of Spark's Python processes without its frames.

    Such a process sends the error to the JVM and exits, so the variable affects no other error.
    """
    try:
        yield
    except SparkinesisError:
        if is_process_of_spark():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def is_process_of_spark() -> bool:
    """Return True in the processes that the JVM starts by ``python -m pyspark...``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


_TWICE_WITHIN = 5.0
"""Seconds within which a second SIGTERM belongs to the first."""


def exit_on_sigterm() -> None:
    """Exit normally on SIGTERM, by which Spark 4.3 ends the planning process, so `stop` runs.

    Spark sends the signal twice, and the second must not interrupt `stop`. A later one counts
    again: Python drops the exception of a handler that interrupts a destructor.
    """
    left_at = -math.inf

    def leave(*_: object) -> None:
        nonlocal left_at
        if time.monotonic() - left_at >= _TWICE_WITHIN:
            left_at = time.monotonic()
            sys.exit(128 + signal.SIGTERM)

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)
