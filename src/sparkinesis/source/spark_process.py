"""A Python process of Spark: the begin of a task, and expected errors as Spark shows them.

Spark runs the data source in Python processes of its own. It shows an error of theirs in the log
and in the exception of the user's program, with the frames of sparkinesis and of PySpark before the
message, twice and three times over. An expected error names its cause and what to do, and its
frames only hide that. Any other error is a bug, and keeps them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sparkinesis.errors import SparkinesisError
from sparkinesis.public import __version__

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
def told_by_its_message() -> Iterator[None]:
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
