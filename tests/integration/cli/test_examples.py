"""The examples of docs/commands.md run as they are printed, on a local Kinesis."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from sparkinesis.queue.client import QueueClient
from sparkinesis.queue.finding import NewQueue, Queues
from tests.command import COMMAND, call
from tests.pace import eventually
from tests.streams import put
from tests.unit.cli.commands_page import EXAMPLES, SERVING

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")

SAID = {
    "init": "Wrote first/app.py, first/test_app.py, first/README.md.",
    "run": "flights-app",
    "leases": "shardId-000000000000  -",
    "top": "flights-app, stream flights",
    "ui": "The page of flights-app: http://127.0.0.1:",
    "doctor": '"check": "stream flights"',
    "exporter": "/metrics until Ctrl-C",
    "restart": "No shard is stopped",
    "reset": "Moved 1 lease of flights-app.",
    "convert-leases": "1 lease of flights-app would be converted. Nothing was written.",
    "dead-letters": "There are no dead letters in dead-letters",
    "kclpy": "the sample runs",
    "tail": "into the stream 'copy'",
    "put": "Put 2 records into the stream 'flights'",
    "shards": "1 shard, 1 open",
    "queues list": "old-orders  ACTIVE  shop",
    "queues describe": '"visibility_timeout": 30',
    "queues create": "max receive count   10",
    "queues update": "visibility timeout  60",
    "queues delete": "Deleted the queue old-orders.",
    "queues tail": '"data": "to be shown"',
    "queues dead-letters": "Restored 1 of 1 dead letter.",
    "local": "http://127.0.0.1:",
    "compile-pyspark": "added to spark/python/lib/pyspark.zip",
}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A server with an application that has run."""
    with LocalServer(limits=None) as running:
        kinesis = running.client("kinesis")
        for name in ("flights", "copy"):
            kinesis.create_stream(StreamName=name, ShardCount=1)
        put(kinesis, "flights", [b"one", b"two"])
        queues = Queues("us-east-1", running.endpoint_url)
        for name, stream in (("orders", "events"), ("old-orders", "shop")):
            kinesis.create_stream(StreamName=stream, StreamModeDetails={"StreamMode": "ON_DEMAND"})
            address, _ = queues.find(name, NewQueue(stream, max_receive_count=1))
            kinesis.put_record(StreamName=stream, Data=b"dead", PartitionKey="LH-400")
            assert len(QueueClient(address).receive(10, 1, 0)) == 1
        kinesis.put_record(StreamName="events", Data=b"to be shown", PartitionKey="LH-401")
        seen: list[object] = []
        application = Application(
            "flights-app",
            "flights",
            seen.extend,
            region="us-east-1",
            endpoint=running.endpoint_url,
            initial_position="trim_horizon",
        )
        worker = application.worker().start()
        eventually(lambda: len(seen) == 2)
        worker.shutdown()
        yield running


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    assert call("init", str(folder), "--stream", "flights").returncode == 0
    return folder


@pytest.fixture
def folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the examples name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    (tmp_path / "dead-letters").mkdir()
    (tmp_path / "flights.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "sample.properties").write_text("executableName = sample.py\n")
    (tmp_path / "sample.py").write_text("print('the sample runs')\n")
    archive = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("pyspark/__init__.py", "")
    return tmp_path


def environment(server: LocalServer) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **kept,
        "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "KINESIS_ENDPOINT": server.endpoint_url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_command_runs(name: str, server: LocalServer, folder: Path) -> None:
    assert BASH is not None
    command = f"exec {EXAMPLES[name]}" if name in SERVING else EXAMPLES[name]
    with subprocess.Popen(
        [BASH, "-c", command],
        env=environment(server),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        runs = name in SERVING
        for line in process.stdout:
            said += line
            if runs and SAID[name] in said:
                process.send_signal(signal.SIGINT)
                runs = False
    assert SAID[name] in said
    says_no = name == "restart" or (name == "doctor" and '"problem"' in said)
    assert process.returncode == int(says_no), said
