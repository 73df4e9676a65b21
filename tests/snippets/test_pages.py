"""The blocks of README.md and docs/ run, page by page, on a local Kinesis: see `running`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from tests.documents import shown
from tests.snippets.collecting import How, pages, snippets
from tests.snippets.running import REGION, PageRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = [page for page in pages() if any(each.how is How.RUN for each in snippets(page))]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One server for all pages: Spark starts new Python processes for another environment."""
    with (
        LocalServer(dynamodb=True, limits=None) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {
            "AWS_ENDPOINT_URL": running.endpoint_url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def session(server: LocalServer, spark: SparkSession) -> Iterator[SparkSession]:
    from tests.spark.reading import python_environment  # noqa: PLC0415 - imports PySpark

    ours = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with python_environment(spark, ours):
        yield spark


@pytest.fixture
def empty(server: LocalServer) -> Iterator[LocalServer]:
    """The server without streams, queues and tables, as it is again in the end."""
    yield server
    kinesis: Any = server.client("kinesis", REGION)
    for queue in kinesis.list_queues()["QueueSummaries"]:
        kinesis.delete_queue(QueueARN=queue["QueueARN"])
    for name in kinesis.list_streams()["StreamNames"]:
        kinesis.delete_stream(StreamName=name, EnforceConsumerDeletion=True)
    dynamodb: Any = server.client("dynamodb", REGION)
    for name in dynamodb.list_tables()["TableNames"]:
        dynamodb.delete_table(TableName=name)


@pytest.mark.limit(300)
@pytest.mark.parametrize("page", RUN, ids=shown)
def test_the_blocks_of_a_page_run(
    page: Path,
    empty: LocalServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    session: Callable[[], Any] = lambda: request.getfixturevalue("session")  # noqa: E731
    PageRun(snippets(page), tmp_path, empty, session).run()
