"""Programs of ``docs/payloads.md``, each in a process of its own: those of Avro.

Spark 4.3.0 runs the Avro package of 4.2.0 here, as the page says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests import pace
from tests.documents import Block
from tests.spark.glue import FIXTURE, add_schema, add_version, glue_registry, header
from tests.spark.printed import exports
from tests.spark.test_payloads import AVRO, AVRO_SHOWN, GLUE_AVRO
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "org.apache.spark:spark-avro_2.13:4.2.0"
_GROUP, _NAME, _VERSION = PACKAGE.split(":")
JAR = Path.home().joinpath(
    ".m2", "repository", *_GROUP.split("."), _NAME, _VERSION, f"{_NAME}-{_VERSION}.jar"
)

has_avro = pytest.mark.skipif(
    not JAR.exists(), reason=f"{PACKAGE} is missing: mvn dependency:get -Dartifact={PACKAGE}"
)

WITH_AVRO = f"--master local[2] --conf spark.ui.enabled=false --jars {JAR} pyspark-shell"
FLIGHT = b64decode(FIXTURE["avro"])


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    client = server.client("kinesis", "eu-west-1")
    client.create_stream(StreamName="flights", ShardCount=1)
    return client


def run(
    program: Block, server: LocalServer, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    use_java()
    text = program.text.replace("/tmp/", f"{folder}/")
    text = text.replace("query.awaitTermination()", "query.processAllAvailable()\nquery.stop()")
    return subprocess.run(
        [sys.executable, "-c", text],
        env={
            **os.environ,
            **exports(server.endpoint_url),
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=pace.seconds(200),
        check=False,
    )


@has_avro
def test_avro(server: LocalServer, kinesis: Any, tmp_path: Path) -> None:
    assert PACKAGE in AVRO.page.read_text("utf-8")
    put(kinesis, "flights", [FLIGHT, b"later"], key="any")
    ran = run(AVRO, server, tmp_path, PYSPARK_SUBMIT_ARGS=WITH_AVRO)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip() == AVRO_SHOWN.strip()


@pytest.fixture
def registry() -> Iterator[tuple[Any, str]]:
    with glue_registry() as found:
        yield found


@has_avro
def test_avro_of_the_glue_schema_registry(
    server: LocalServer,
    kinesis: Any,
    registry: tuple[Any, str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Two versions of a schema, bad records, and one without a header; then an unknown id."""
    client, endpoint = registry
    first = add_schema(client, "AVRO", FIXTURE["schema"])
    tower = '{"name": "tower", "type": "string", "default": ""}'
    gate = '{"name": "gate", "type": ["null", "string"], "default": null}'
    second = add_version(client, FIXTURE["schema"].replace("]}", f", {tower}, {gate}]}}"))
    other = FLIGHT + b"\x08west" + b"\x02\x04C7"
    records = [
        header(first, FLIGHT),
        header(second, other, compresses=True),
        header(first, FLIGHT, compresses=True)[:-3],
        header(first, b"later"),
        b"other",
    ]
    settings = {"PYSPARK_SUBMIT_ARGS": WITH_AVRO, "AWS_ENDPOINT_URL_GLUE": endpoint}
    put(kinesis, "flights", records, key="any")
    ran = run(GLUE_AVRO, server, tmp_path, **settings)
    assert ran.returncode == 0, ran.stderr[-3000:]
    stored = spark.read.parquet(str(tmp_path / "flights"))
    rows = {bytes(row.data): (row.schemaId, row.flight, row.batch) for row in stored.collect()}
    assert rows == {
        records[0]: (first, ("N14228", 11, None), 0),
        records[1]: (second, ("N14228", 11, "C7"), 0),
        records[2]: (first, None, 0),
        records[3]: (first, (None, None, None), 0),
    }
    others = spark.read.parquet(str(tmp_path / "others")).collect()
    assert [bytes(row.data) for row in others] == [b"other"]

    put(kinesis, "flights", [header("0" * 32, FLIGHT)], key="any")
    ran = run(GLUE_AVRO, server, tmp_path, **settings)
    assert ran.returncode != 0
    assert "EntityNotFoundException" in ran.stderr
