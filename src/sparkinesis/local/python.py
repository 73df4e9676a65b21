"""The Python of Spark's workers, on a machine with several."""

from __future__ import annotations

import os
import sys


def use_this_python() -> None:
    """Set PYSPARK_PYTHON to this program's interpreter, unless the variable is set.

    Spark's workers otherwise run ``python3`` of the PATH, which is another Python in a virtual
    environment that is not activated. Call this before the Spark session is made.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
