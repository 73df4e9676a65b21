"""Makes ``format("kinesis")`` known to every Spark session, without a call.

Spark looks for Python data sources in packages whose names begin with ``pyspark_``, and takes their
class ``DefaultSource``. It imports the package in a process of its own, when a session first uses
a format that Spark itself does not have. An error here would hide the sources of other packages,
too, so this module raises none.
"""

import logging
import sys
from pathlib import Path

try:
    from sparkinesis.source.datasource import KinesisDataSource as DefaultSource
except ImportError as error:
    # A sparkinesis that is missing or broken, or a PySpark that is too old.
    logging.getLogger(__name__).warning('There is no format("kinesis"): %s', error)
else:
    __all__ = ["DefaultSource"]
    _here = Path(__file__).parents[1]
    _there = Path(sys.modules["sparkinesis"].__file__ or "").parents[1]
    if _here != _there:
        logging.getLogger(__name__).warning(
            "Two installations of sparkinesis are on Python's path: %s and %s. Remove one of them; "
            'format("kinesis") is that of %s.',
            _here,
            _there,
            _there,
        )
