"""The garbage collections of a Python process of Spark, which runs one task after another."""

from __future__ import annotations

import gc
import sys

_exempt_modules: int | None = None
"""The number of modules at the last exemption; None before the first task."""


def begin_task() -> None:
    """Exempt from garbage collection what earlier tasks have loaded; call as a task begins.

    PySpark's daemon collects after every task (``pyspark.daemon``), and each collection walks all
    that botocore, pyarrow and the query's own code have loaded: tens of milliseconds. The
    collection before this task has left no garbage to exempt. Does nothing in the first task, and
    in a task before which no module was loaded.
    """
    global _exempt_modules  # noqa: PLW0603 - of the process
    if _exempt_modules is None:
        _exempt_modules = 0
    elif len(sys.modules) > _exempt_modules:
        gc.freeze()
        _exempt_modules = len(sys.modules)
