"""One Spark session for all tests in this folder, and streams on a local Kinesis of their own."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import examples
import sparkinesis
from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests.spark.class_archive import java_options
from tests.spark.cluster import Cluster, zip_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""To compile the code of a plan takes longer than a test's few rows take without it."""


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield


@pytest.fixture(scope="session", autouse=True)
def drivers() -> Iterator[None]:
    """What each driver's JVM is started with, also in the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_SUBMIT_OPTS", f"{java_options()} {_INTERPRETED}")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    use_java()
    from pyspark.sql import SparkSession  # noqa: PLC0415
    from pyspark.sql.streaming.readwriter import DataStreamWriter  # noqa: PLC0415

    from examples.flights.query import start_patiently  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("sparkinesis-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    sparkinesis.register(session)
    start = DataStreamWriter.start

    def start_again(writer: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        return start_patiently(lambda: start(writer, *args, **options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start_again)
        yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def py_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The source, and the demo whose query runs on the cluster, as they are shipped to it."""
    folder = tmp_path_factory.mktemp("shipped")
    return [
        zip_package(Path(package.__path__[0]), folder / f"{package.__name__}.zip")
        for package in (sparkinesis, examples)
    ]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0) as running:
        yield running


@pytest.fixture
def stream_name() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
