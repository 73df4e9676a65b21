"""Printed programs, run as they stand in the session that the tests share, on a local Kinesis."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from sparkinesis.local import LocalServer
from tests.documents import README, blocks, commands
from tests.snippets.running import process_and_stop
from tests.spark.reading import python_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[str], dict[str, Any]]


def exports(endpoint: str) -> dict[str, str]:
    """The environment variables that the README sets for the local Kinesis."""
    lines = [line for block in blocks(README) for line in commands(block)]
    lines = [line for line in lines if line.startswith("export ") and "$(" not in line]
    pairs = [word for line in lines for word in shlex.split(line)[1:]]
    found = dict(pair.split("=", 1) for pair in pairs)
    assert found["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    return {**found, "AWS_ENDPOINT_URL": endpoint}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One server for all programs: Spark starts new Python processes for another environment."""
    with LocalServer(port=0, limits=None) as running:
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Iterator[Any]:
    """A client of the local Kinesis, whose stream of one shard keeps the order of records."""
    client = server.client("kinesis", "eu-west-1")
    client.create_stream(StreamName="flights", ShardCount=1)
    yield client
    client.delete_stream(StreamName="flights")


@pytest.fixture
def run(spark: SparkSession, server: LocalServer, tmp_path: Path) -> Iterator[Run]:
    """Runs a program; returns the program's variables."""

    def run_program(text: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "__main__"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamingQuery, "awaitTermination", process_and_stop)
            exec(text.replace("/tmp/", f"{tmp_path}/"), names)
        return names

    with python_environment(spark, exports(server.endpoint_url)):
        yield run_program
