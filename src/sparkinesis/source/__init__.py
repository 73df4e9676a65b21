"""The Spark data source ``kinesis``: streaming and batch reads, and writes.

`datasource` is what Spark calls, `offsets` is what Spark's checkpoint holds, `row_columns` the
schema. `options` are checked first; then `planning` finds the end of a batch on the driver,
`reading` reads it in tasks. `batch_reader` with `batch_planner`, and `writing`, are the other two
ways; `stream_report` is a plan's report in a query's progress, which `watch` hears from Spark, and
of which `watched_query` makes metrics and lags. `spark_python` is about Spark's Python processes.
"""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = "pyspark.sql.streaming.datasource"
"""The module is new in PySpark 4.2. A platform's PySpark may have it under an older number."""


def check_pyspark() -> None:
    """Raise `ImportError` if PySpark is missing or too old."""
    try:
        is_there = find_spec(_NEEDED) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise ImportError(f"sparkinesis needs PySpark 4.2 or newer; {_found()}")


def _found() -> str:
    try:
        from pyspark import __version__  # noqa: PLC0415 - it may be missing
    except ImportError:
        return "none is installed: pip install 'sparkinesis[spark]'"
    return f"this is {__version__}"
