"""The source as the Spark tests use it."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

REGION = "us-east-1"


def read_stream(spark: SparkSession, endpoint: str, stream: str, **options: str) -> DataFrame:
    """A streaming DataFrame of a local stream, from its oldest record on."""
    return (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("endpoint", endpoint)
        .option("region", REGION)
        .option("initialPosition", "trim_horizon")
        .options(**options)
        .load()
    )


def start_patiently(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and start it again if Spark gave its planner too little time.

    Spark waits ten seconds for the planner's Python process to connect, and no option changes that.
    On a busy machine the process takes longer, and the query fails before it has read anything.
    """
    while True:
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        if query.isActive or "failed to connect back" not in str(query.exception()):
            return query
