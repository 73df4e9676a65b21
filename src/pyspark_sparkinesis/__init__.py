"""Makes ``format("kinesis")`` known to every Spark session, without a call.

Spark looks for Python data sources in packages whose names begin with ``pyspark_``, when a session
first uses a format that Spark itself does not have, and takes their class ``DefaultSource``. That
costs every user of another Python data source the import of this module, so the class here is a
name only: sparkinesis is imported when a query uses it.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from sparkinesis.source.datasource import KinesisDataSource


class DefaultSource(DataSource):
    """``format("kinesis")``; an instance is a `sparkinesis.source.datasource.KinesisDataSource`."""

    @classmethod
    def name(cls) -> str:
        return "kinesis"

    def __new__(cls, options: MutableMapping[str, str]) -> KinesisDataSource:  # type: ignore[misc]
        import sparkinesis  # noqa: PLC0415 - see above
        from sparkinesis.source import check_pyspark  # noqa: PLC0415

        check_pyspark()
        from sparkinesis.source.datasource import KinesisDataSource  # noqa: PLC0415 - see above

        here, there = (Path(str(file)).parents[1] for file in (__file__, sparkinesis.__file__))
        if here != there:
            logging.getLogger(__name__).warning(
                "Python's path has two installations of sparkinesis, %s and %s. Queries use the "
                "second, %s. Remove the other one.",
                here,
                there,
                sparkinesis.__version__,
            )
        return KinesisDataSource(options)
