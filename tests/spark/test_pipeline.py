"""The example of a declarative pipeline, by `spark-pipelines`: killed, and updated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests.documents import blocks
from tests.engine import query_of
from tests.spark.query_process import FREE_PORT, ROOT, group_process, kill, wait_until
from tests.streams import split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The tables of one run are known to the next by a metastore: Hive's, in the project's folder.
COMMAND = ("spark-pipelines", "--conf", "spark.sql.catalogImplementation=hive", "run")
CARRIERS = ("AA", "DL", "UA")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example, with its storage in the test's folder."""
    found = Path(shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "pipeline"))
    spec = found / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/sparkinesis-pipeline" in text
    spec.write_text(text.replace("file:///tmp/sparkinesis-pipeline", f"file://{tmp_path}/storage"))
    return found


@pytest.fixture
def environment(server: LocalServer) -> dict[str, str]:
    use_java()
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **FREE_PORT,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "AWS_REGION": "us-east-1",
    }


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    client = server.client("kinesis")
    for name in ("flights", "late-flights"):
        client.create_stream(StreamName=name, ShardCount=2)
    return client


def put_flights(kinesis: Any, numbers: range) -> None:
    for number in numbers:
        flight = {"carrier": CARRIERS[number % 3], "delay": number}
        kinesis.put_record(
            StreamName="flights", PartitionKey=flight["carrier"], Data=json.dumps(flight)
        )


def late_flights(server: LocalServer) -> list[int]:
    rows = [row for batch in query_of(server, "late-flights").drain() for row in batch.rows]
    return [json.loads(row["data"])["delay"] for row in rows]


def update(project: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        COMMAND,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode, "Run is COMPLETED" in done.stdout) == (0, True), done.stdout[-3000:]


def test_an_update_after_a_kill(
    spark: SparkSession,
    server: LocalServer,
    kinesis: Any,
    project: Path,
    environment: dict[str, str],
) -> None:
    warehouse = project / "spark-warehouse"
    log = project / "killed.log"
    put_flights(kinesis, range(30))
    with group_process([*COMMAND], log, environment, project) as process:
        wait_until(lambda: "flights is RUNNING" in log.read_text(), process, log)
        kill(process)
    split(kinesis, "flights")
    put_flights(kinesis, range(30, 60))

    update(project, environment)
    table = spark.read.parquet(str(warehouse / "flights"))
    assert sorted(row.delay for row in table.collect()) == list(range(60))
    view = spark.read.parquet(str(warehouse / "delays")).collect()
    assert {tuple(row) for row in view} == {("AA", 20, 57), ("DL", 20, 58), ("UA", 20, 59)}
    # At least once: the killed run may have put some of them.
    assert set(late_flights(server)) == set(range(16, 60))


def test_the_page_shows_the_example() -> None:
    project = ROOT / "examples" / "pipeline"
    shown = "".join(block.text for block in blocks(ROOT / "docs" / "pipelines.md"))
    files = [path for path in project.rglob("*") if path.suffix in {".py", ".sql", ".yml"}]
    assert len(files) == 3
    for path in files:
        text = path.read_text()
        assert (text.partition('"""\n\n')[2] or text).strip() in shown, path
