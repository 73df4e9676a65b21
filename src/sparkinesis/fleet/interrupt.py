"""What Ctrl-C means while a program waits for its fleet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sparkinesis.worker.lifecycle.signals import handling


@contextmanager
def python_interrupt_handler(*, only_for_spark: bool = False) -> Iterator[None]:
    """Python's own answer to Ctrl-C within the block: KeyboardInterrupt, and nothing else.

    A SparkContext sets a handler that cancels all jobs first, and so kills the fleet's workers.
    ``only_for_spark``: leave a handler alone that is not PySpark's.
    """
    before = signal.getsignal(signal.SIGINT)
    is_sparks = (getattr(before, "__module__", None) or "").startswith("pyspark.")
    # A handler that is not Python's could not be put back.
    if before is None or (only_for_spark and not is_sparks):
        yield
        return
    with handling([signal.SIGINT], signal.default_int_handler):
        yield
