"""Wrong statements, and the message that each gets.

`tests/unit/source/options` has every mistake in the options of a new table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.reading import python_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = {
    "": "Give either the option streamName or the option streamARN",
    "OPTIONS (streamName 'flights', region 'eu-vest-1')": "Did you mean eu-west-1",
    "OPTIONS (streamName 'flights', maxBytesPerTrigger '5 apples')": "a unit, such as",
    "OPTIONS (streamName 'flights', aggregationMaxSize '100k')": "needs the option aggregation",
    "TBLPROPERTIES ('team' = 'blue')": "Give either the option streamName",
}
"""What follows CREATE TABLE t USING kinesis."""

STATEMENTS = {
    "SELECT * FROM flights WITH (startingPositon = 'latest')": "Did you mean startingPosition?",
    "SELECT * FROM flights WITH (initialPosition = 'latest')": "is for readStream, not for read",
    "SELECT * FROM flights WITH (streamARN = 'arn:aws:kinesis:eu-west-1:123456789012:stream/x')": (
        "not both"
    ),
    "INSERT INTO flights VALUES ('UA', X'00')": "not enough data columns",
    "INSERT INTO flights (partitionKey, data) VALUES ('UA', 'text')": 'STRING" to "BINARY"',
    "INSERT INTO flights (partitionKey) VALUES ('UA')": "its data is null",
    "INSERT INTO flights (data, stream) VALUES (X'00', 'flights')": "itself fills",
    "INSERT INTO flights (data, partitionKey) VALUES (X'00', '')": "the key has 0 characters",
    "INSERT INTO flights (data, explicitHashKey) VALUES (X'00', '-1')": "a whole number in decimal",
    "INSERT INTO flights WITH (ordered = 'yess') (data) VALUES (X'00')": "true or false",
    "INSERT OVERWRITE flights (data) VALUES (X'00')": "can only be appended to",
    "SELECT * FROM with_columns": "created without a list of columns",
    "INSERT INTO with_columns VALUES ('UA', X'00')": "created without a list of columns",
    "CREATE TABLE t USING kinesis OPTIONS (streamName 'flights') AS SELECT X'00' AS data": (
        "without AS SELECT"
    ),
    "SELECT * FROM altered": "A read of the kinesis source has fixed columns",
    "CREATE TEMPORARY VIEW v USING kinesis OPTIONS (streamNam 'flights')": "mean streamName?",
    "CREATE TEMPORARY VIEW v USING kinesis OPTIONS (streamName 'flights', ordered 'true')": (
        "The option ordered is for write"
    ),
    "CREATE TABLE t USING kinesys OPTIONS (streamName 'flights')": "kinesys",
}


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[Callable[[str], Any]]:
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "eu-west-1"}
    with python_environment(spark, nowhere):
        for name in ("flights", "altered"):
            spark.sql(f"CREATE TABLE {name} USING kinesis OPTIONS (streamName 'flights')")
        spark.sql("ALTER TABLE altered ADD COLUMNS (delay INT)")
        spark.sql("CREATE TABLE with_columns (partitionKey STRING, data BINARY) USING kinesis")
        yield spark.sql
        for name in ("flights", "altered", "with_columns"):
            spark.sql(f"DROP TABLE {name}")


def message(sql: Callable[[str], Any], statement: str) -> str:
    """What a user is told; it also ends in a file, to be read as a whole."""
    with pytest.raises(Exception, match=r".") as raised:
        sql(statement).collect()
    told = str(raised.value).split("JVM stacktrace")[0].strip()
    if into := os.environ.get("MESSAGES"):
        with Path(into).open("a") as file:
            file.write(f"{statement}\n    {told}\n\n")
    return told


@pytest.mark.parametrize("rest", CREATE)
def test_a_table_that_cannot_be_created(
    spark: SparkSession, sql: Callable[[str], Any], rest: str
) -> None:
    told = message(sql, f"CREATE TABLE t USING kinesis {rest}")
    assert CREATE[rest] in told
    assert not re.search(r"Traceback|\.py\"", told), told
    assert not spark.catalog.tableExists("t")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_is_refused(
    spark: SparkSession, sql: Callable[[str], Any], statement: str
) -> None:
    told = message(sql, statement)
    assert STATEMENTS[statement] in told
    assert not re.search(r"Traceback|\.py\"", told), told
    assert not spark.catalog.tableExists("t")
