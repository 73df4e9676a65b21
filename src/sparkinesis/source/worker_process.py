"""The begin of a task in a Python process of Spark, which runs one task after another."""

from __future__ import annotations

import gc
import sys

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
