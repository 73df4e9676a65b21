"""The Spark session of tests/spark, for the pages that need it."""

from tests.spark.conftest import credentials, drivers, spark

__all__ = ["credentials", "drivers", "spark"]
