"""Expected errors as Spark shows them: the message alone, without Python's frames.

Spark runs the data source in Python processes of its own. It shows an error of theirs in the log
and in the exception of the user's program, with the frames of sparkinesis and of PySpark before the
message, twice and three times over. An expected error names its cause and what to do, and its
frames only hide that. Any other error is a bug, and keeps them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sparkinesis.errors import SparkinesisError

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
