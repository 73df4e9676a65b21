"""What Ctrl-C means while a program waits for its fleet."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_interrupt(*, only_for_spark: bool = False) -> Iterator[None]:
    """Python's own answer to Ctrl-C within the block: KeyboardInterrupt, and nothing else.

    A SparkContext sets a handler that cancels all jobs first, and so kills the fleet's workers.
    ``only_for_spark``: leave a handler alone that is not PySpark's.
    """
    before = signal.getsignal(signal.SIGINT)
    is_sparks = (getattr(before, "__module__", None) or "").startswith("pyspark.")
    # Only the main thread may set a handler, and one that is not Python's cannot be put back.
    if (
        before is None
        or threading.current_thread() is not threading.main_thread()
        or (only_for_spark and not is_sparks)
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
