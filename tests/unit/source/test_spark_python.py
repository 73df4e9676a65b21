"""Spark's Python processes: their interpreter, their garbage collections, how they show errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import sparkinesis
from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.local import LocalServer
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.source.reading.read_task import BatchPartition, ShardPartition, ToRead
from sparkinesis.source.spark_python import (
    HIDE_TRACEBACK,
    check_worker_python,
    problem_of,
    without_frames,
)
from sparkinesis.stream.position import SHARD_END, TRIM_HORIZON, ShardRange
from tests.sink import SPARK_SCHEMA, arrow
from tests.streams import put

QUERY = """
import gc, json, sys
from sparkinesis.source.planning.probing import records_in_hand
from sparkinesis.source.reading.shard_reader import keep_freed_memory
from tests.engine import Query

records_in_hand.KEPT_BYTES = -1  # so that tasks fetch their records

query = Query(streamName="s", endpoint=sys.argv[1], region="us-east-1",
              initialPosition="trim_horizon", maxRecordsPerTrigger="2")
exempt = []
assert not keep_freed_memory.cache_info().currsize
while query.next_batch():
    exempt.append(gc.get_freeze_count())
assert keep_freed_memory.cache_info().currsize, "a read task keeps its process's memory"
print(json.dumps([query.rows_read, *exempt]))
"""

BATCH_READS = """
import gc, json, sys
from pyspark.sql.types import StructType
from sparkinesis.source.datasource import KinesisDataSource

source = KinesisDataSource({"streamName": "s", "endpoint": sys.argv[1], "region": "us-east-1"})
exempt, rows = [], 0
for _ in range(3):
    reader = source.reader(StructType())
    for partition in reader.partitions():
        rows += sum(batch.num_rows for batch in reader.read(partition))
        exempt.append(gc.get_freeze_count())
print(json.dumps([rows, *exempt]))
"""

WRITES = """
import gc, json, sys
from tests.sink import write

exempt = []
for _ in range(3):
    write(sys.argv[1], [[("key", None, b"data")]])
    exempt.append(gc.get_freeze_count())
print(json.dumps([len(exempt), *exempt]))
"""

OTHER_MODULES = """
import gc, json
from sparkinesis.public import __version__
from sparkinesis.source.spark_python import begin_task

exempt = []
for task in range(5):
    begin_task(__version__)
    exempt.append(gc.get_freeze_count())
    if task == 2:
        import decimal, xml.dom.minidom
print(json.dumps(exempt))
"""


def exempt_after(program: str) -> tuple[int, list[int]]:
    """Return the number of rows, and the objects that are exempt after each task."""
    with LocalServer(port=0, limits=False) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        put(kinesis, "s", [b"%d" % number for number in range(6)])
        rows, *exempt = run(program, server.endpoint_url)
    return rows, exempt


def run(program: str, *arguments: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("program", "expected"),
    [(QUERY, 6), (BATCH_READS, 18), (WRITES, 3)],
    ids=["query", "read", "write"],
)
def test_collections_spare_what_the_first_task_has_loaded(program: str, expected: int) -> None:
    rows, (first, second, *later) = exempt_after(program)
    assert rows == expected
    assert first == 0, "the first task still loads"
    assert second > 50_000, "botocore, pyarrow and pyspark"
    assert later
    assert all(count <= second for count in later), "garbage of later tasks is collected"


def test_modules_that_a_later_task_loads_are_spared_from_the_next_task_on() -> None:
    first, second, third, fourth, fifth = run(OTHER_MODULES)
    assert first == 0
    assert 0 < third <= second, "no module was loaded since"
    assert fourth > third, "a third task has loaded more"
    assert fifth <= fourth


def of_another_version(reading_or_writing: Any) -> Any:
    return replace(reading_or_writing, version="9.9")


def test_each_task_checks_the_version_of_the_driver() -> None:
    source = KinesisDataSource({"streamName": "flights", "region": "us-east-1"})
    batch = source.reader(StructType())
    batch._options = replace(batch._options, reading=of_another_version(batch._options.reading))
    stream = source.streamReader(StructType())
    stream._options = replace(stream._options, reading=of_another_version(stream._options.reading))
    writer = source.writer(StructType([StructField("data", BinaryType())]), overwrite=False)
    writer._options = of_another_version(writer._options)
    one = BatchPartition("flights", ShardRange("shardId-000000000000", TRIM_HORIZON, SHARD_END))
    for task in (
        lambda: next(batch.read(one)),
        lambda: next(stream.read(ShardPartition("flights", [], None))),
        lambda: writer.write(iter([])),
    ):
        with pytest.raises(SparkinesisError, match=r"driver has sparkinesis 9.9, .* executor has"):
            task()


@pytest.fixture(autouse=True)
def process_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks like one of Spark's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # so that the fixture restores it
    monkeypatch.delenv(HIDE_TRACEBACK)
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", SimpleNamespace(name="pyspark.daemon"), raising=False)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False) as running:
        yield running


@without_frames()
def fail(error: Exception) -> None:
    raise error


def test_any_other_error_keeps_them() -> None:
    with pytest.raises(ValueError, match="a bug"):
        fail(ValueError("a bug"))
    assert HIDE_TRACEBACK not in os.environ


@pytest.mark.parametrize("name", ["pytest.__main__", "pysparkling.main", None])
def test_a_process_that_is_not_sparks_keeps_them(
    monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    spec = None if name is None else SimpleNamespace(name=name)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    with pytest.raises(OptionError):
        fail(OptionError("wrong"))
    assert HIDE_TRACEBACK not in os.environ


def missing(server: LocalServer) -> KinesisDataSource:
    """The source of a stream that does not exist."""
    return KinesisDataSource(
        {"streamName": "none", "endpoint": server.endpoint_url, "region": "us-east-1"}
    )


RANGE = ShardRange("shardId-000000000000", TRIM_HORIZON, SHARD_END)
OWN = StructType()
OTHER = StructType().add("a", LongType())

CALLS: dict[str, Callable[[LocalServer], Any]] = {
    "the options": lambda _: KinesisDataSource({"streamName": ""}),
    "a load": lambda _: KinesisDataSource({"zzz": ""}).schema(),
    "a batch reader": lambda server: missing(server).reader(OTHER),
    "a batch plan": lambda server: missing(server).reader(OWN).partitions(),
    "a batch task": lambda server: list(
        missing(server).reader(OWN).read(BatchPartition("none", RANGE, None))
    ),
    "a stream reader": lambda server: missing(server).streamReader(OTHER).initialOffset(),
    "its plan": lambda server: (
        missing(server).streamReader(OTHER).latestOffset({}, ReadAllAvailable())
    ),
    "its tasks": lambda server: missing(server).streamReader(OTHER).partitions({}, {}),
    "available now": lambda server: (
        missing(server).streamReader(OWN).prepareForTriggerAvailableNow()
    ),
    "a plan": lambda server: plan(missing(server)),
    "the tasks of a plan": lambda server: (
        missing(server).streamReader(OWN).partitions({}, {"a": 1})
    ),
    "a task": lambda server: list(
        missing(server).streamReader(OWN).read(ShardPartition("none", [ToRead(RANGE)], None))
    ),
    "a writer": lambda server: missing(server).writer(SPARK_SCHEMA, True),
    "a stream writer": lambda server: missing(server).streamWriter(SPARK_SCHEMA, True),
    "a write": lambda server: missing(server).writer(SPARK_SCHEMA, False).write(rows()),
    "a write of a stream": lambda server: (
        missing(server).streamWriter(SPARK_SCHEMA, False).write(rows())
    ),
}
"""Everything that Spark calls, on a stream that does not exist."""


def plan(source: KinesisDataSource) -> Any:
    reader = source.streamReader(OWN)
    return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def rows() -> Iterator[pa.RecordBatch]:
    yield arrow([("key", None, b"data")])


@pytest.mark.parametrize("what", CALLS)
def test_an_expected_error_of_every_call_hides_the_frames(server: LocalServer, what: str) -> None:
    with pytest.raises(SparkinesisError):
        CALLS[what](server)
    assert os.environ.get(HIDE_TRACEBACK) == "1"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of a virtual environment without packages."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, symlinks=True, with_pip=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.chdir(folder)
        yield folder / "bin" / "python3"


@dataclass
class Context:
    """What the check asks a SparkContext."""

    master: str
    pythonExec: str  # noqa: N815
    conf: dict[str, str] = field(default_factory=dict)
    _python_includes: list[str] = field(default_factory=list)

    def getConf(self) -> dict[str, str]:
        return self.conf


@dataclass
class Session:
    sparkContext: Context  # noqa: N815


def check(context: Context) -> None:
    check_worker_python(cast(Any, Session(context)))


def test_another_python_without_the_package_is_told_with_what_to_set(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(other.parent))
    with pytest.raises(OptionError) as caught:
        check(Context("local[2]", "python3"))
    assert str(caught.value) == (
        f"Spark's Python workers would run {other} (python3 of the PATH, because PYSPARK_PYTHON "
        f"was not set), which has no package sparkinesis. This program runs {sys.executable}. Set "
        f"the environment variable PYSPARK_PYTHON to {sys.executable} before the Spark session is "
        "made, for example by sparkinesis.local.use_this_python(), or activate the virtual "
        "environment."
    )


def test_a_python_of_the_environment_variable_is_named_as_that(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    with pytest.raises(OptionError, match=r"\(by the environment variable PYSPARK_PYTHON\), which"):
        check(Context("local[2]", str(other)))
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    with pytest.raises(OptionError, match=r"run /nowhere/python \(by .*\), which does not exist"):
        check(Context("local", "/nowhere/python"))


def test_a_cluster_and_a_shipped_package_are_not_checked(other: Path) -> None:
    check(Context("spark://driver:7077", str(other)))
    check(Context("local[2]", str(other), {"spark.submit.pyFiles": "sparkinesis.zip"}))
    check(Context("local[2]", str(other), _python_includes=["sparkinesis.zip"]))
    check_worker_python(cast(Any, object()))  # of Spark Connect


def test_another_name_of_this_python_is_no_problem() -> None:
    for name in {"python", "python3", Path(sys.executable).name}:
        python = Path(sys.executable).with_name(name)
        if python.exists():
            assert problem_of(str(python), sys.executable) is None


def test_another_python_that_has_the_package_is_no_problem(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem_of(str(other), sys.executable) is not None
    monkeypatch.setenv("PYTHONPATH", str(Path(sparkinesis.__path__[0]).parent))
    assert problem_of(str(other), sys.executable) is None


def test_a_python_that_does_not_run_is_left_to_spark(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert problem_of(str(broken), sys.executable) is None


@pytest.mark.parametrize("already", [None, "/usr/bin/python3"])
def test_use_this_python_sets_the_variable_unless_it_is_set(already: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    if already is not None:
        environment["PYSPARK_PYTHON"] = already
    environment["PYTHONPATH"] = str(Path(sparkinesis.__path__[0]).parent)
    code = (
        "import os; from sparkinesis.local.java import use_this_python; use_this_python(); "
        "print(os.environ['PYSPARK_PYTHON'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (already or sys.executable)
