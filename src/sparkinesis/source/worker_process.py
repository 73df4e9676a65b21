"""A Python process of Spark that runs one task after another, as a reader, a writer or both."""

from __future__ import annotations

import gc
import sys


class WorkerProcess:
    """What a process keeps from task to task, and when its garbage collector learns to skip it."""

    def __init__(self) -> None:
        self._exempt_modules: int | None = None
        """The number of modules at the last exemption; None before the first task."""

    def begin_task(self) -> None:
        """Exempt from garbage collection what earlier tasks have loaded; call as a task begins.

        PySpark's daemon collects after every task (``pyspark.daemon``), and each collection walks
        all that botocore, pyarrow and the query's own code have loaded: tens of milliseconds. The
        collection before this task has left no garbage to exempt. Does nothing in the first task,
        and in a task before which no module was loaded.
        """
        if self._exempt_modules is None:
            self._exempt_modules = 0
        elif len(sys.modules) > self._exempt_modules:
            gc.freeze()
            self._exempt_modules = len(sys.modules)


THIS_PROCESS = WorkerProcess()
