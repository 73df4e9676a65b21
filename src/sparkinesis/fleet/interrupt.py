"""The handling of Ctrl-C while a program waits for its fleet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sparkinesis.worker.lifecycle.signals import handling


@contextmanager
def python_interrupt_handler(*, only_for_spark: bool = False) -> Iterator[None]:
    """Restore Python's handler of Ctrl-C within the block: it only raises KeyboardInterrupt.

    A SparkContext installs a handler that first cancels all jobs, and so kills the fleet's workers.
    ``only_for_spark``: replace a handler only if it is PySpark's.
    """
    before = signal.getsignal(signal.SIGINT)
    is_sparks = (getattr(before, "__module__", None) or "").startswith("pyspark.")
    # A handler that was not installed from Python could not be restored.
    if before is None or (only_for_spark and not is_sparks):
        yield
        return
    with handling([signal.SIGINT], signal.default_int_handler):
        yield
