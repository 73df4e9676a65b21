"""The command `sparkinesis local`, run as a process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from sparkinesis.cli.app import app
from sparkinesis.local import LocalServer, LocalServerError
from sparkinesis.local.command import environments_region
from sparkinesis.stream.calls.default_region import default_region
from tests import pace

COMMAND = [str(Path(sys.executable).with_name("sparkinesis")), "local"]
MODULE = [sys.executable, "-m", "sparkinesis.local"]


def start(command: list[str], *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """End the process although an assertion fails."""
    try:
        yield
    finally:
        process.terminate()


def client(url: str, region: str) -> Any:
    session = boto3.Session("x", "x", region_name=region)
    return session.client("kinesis", endpoint_url=url)


@pytest.mark.parametrize(
    ("command", "sign"),
    [(COMMAND, signal.SIGTERM), (MODULE, signal.SIGINT)],
    ids=["command", "module"],
)
def test_it_serves_until_a_signal_and_exits_with_0(
    command: list[str], sign: signal.Signals
) -> None:
    streams = ("--streams", "flights:4,other,orders:on-demand", "--region", "eu-west-1")
    with start(command, "--port", "0", *streams) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        kinesis = client(url, "eu-west-1")
        assert len(kinesis.list_shards(StreamName="flights")["Shards"]) == 4
        assert len(kinesis.list_shards(StreamName="other")["Shards"]) == 1
        orders = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
        assert orders["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
        kinesis.close()
        begin = time.monotonic()
        process.send_signal(sign)
        rest = process.stdout.read()
        assert process.wait(pace.seconds(10)) == 0
        assert time.monotonic() - begin < pace.seconds(5)
    assert "flights (4 shards), other (1 shard), orders (on-demand) in eu-west-1" in rest
    assert "\x1b[" not in rest, "colours are for terminals"
    assert f'.option("endpoint", "{url}")' in rest
    assert f"aws --endpoint-url {url}" in rest


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_REGION": "eu-west-2", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-2"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_PROFILE": "dev"}, "eu-central-1"),
        ({"AWS_REGION": "eu-west-2", "AWS_PROFILE": "dev"}, "eu-west-2"),
        ({"AWS_PROFILE": "unknown"}, "us-east-1"),
    ],
)
def test_its_streams_are_in_the_region_where_clients_look_for_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    expected: str,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text("[profile dev]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environments_region() == expected
    if environment.get("AWS_PROFILE") != "unknown":
        assert default_region(None, is_local=True)[0] == expected


def test_json_is_one_line_and_only_later_streams_take_their_time() -> None:
    with start(COMMAND, "--port", "0", "--json", "--streams", "a:2,q:on-demand") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        kinesis = client(ready["endpoint"], "us-east-1")
        kinesis.put_record(StreamName="a", Data=b"x", PartitionKey="k")
        kinesis.create_stream(StreamName="b", ShardCount=1)
        summary = kinesis.describe_stream_summary(StreamName="b")["StreamDescriptionSummary"]
        kinesis.get_waiter("stream_exists").wait(StreamName="b", WaiterConfig={"Delay": 1})
        kinesis.close()
        process.terminate()
        assert process.stdout.read() == ""
        assert process.wait(pace.seconds(10)) == 0
    assert summary["StreamStatus"] == "CREATING"
    assert ready["endpoint"].startswith("http://127.0.0.1:")
    assert ready["streams"] == {"a": 2, "q": "on-demand"}


def status(url: str, host: str) -> int:
    """Return the status of a request for this host."""
    request = urllib.request.Request(url, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_container_s_server_says_who_can_call_it() -> None:
    options = ("--bind", "0.0.0.0", "--host-name", "kinesis", "--host-name", "queue.test")
    with start(COMMAND, "--port", "0", *options) as process, ended(process):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        hosts = ("kinesis:4566", "queue.test", "localhost", "evil.example")
        assert [status(url, host) for host in hosts] == [200, 200, 200, 403]
        process.terminate()
        said = process.stdout.read()
    assert url.startswith("http://127.0.0.1:")
    assert "It listens on 0.0.0.0: everyone who reaches it can read and delete its data." in said
    assert "(--host-name): localhost, kinesis, queue.test." in said


def test_by_default_only_this_machine_reaches_the_server() -> None:
    with start(COMMAND, "--port", "0") as process, ended(process):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert status(url, "kinesis") == 403
        with pytest.raises(urllib.error.URLError):  # an address that 0.0.0.0 would have
            status(url.replace("127.0.0.1", "127.0.0.2"), "127.0.0.2")
        process.terminate()
        assert "read and delete" not in process.stdout.read()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--bind", "localhost", "'localhost' is no address to listen on"),
        ("--bind", "0.0.0.0:4566", "as in 127.0.0.1"),
        ("--host-name", "http://kinesis:4566", "give the name alone"),
        ("--streams", "a:0", "is not NAME, NAME:SHARDS or NAME:on-demand"),
        ("--streams", "a:x", "'a:x' is not NAME, NAME:SHARDS or NAME:on-demand, as in"),
        ("--streams", "a:ON_DEMAND", "is not NAME, NAME:SHARDS or NAME:on-demand"),
        ("--streams", ":on-demand", "is not NAME, NAME:SHARDS or NAME:on-demand"),
        ("--streams", ":3", "is not NAME, NAME:SHARDS or NAME:on-demand"),
        ("--streams", "a,a", "is given twice"),
    ],
)
def test_what_makes_no_sense_is_refused(option: str, value: str, said: str) -> None:
    result = CliRunner().invoke(app, ["local", "--port", "0", option, value])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bind", "192.0.2.1"], "cannot listen on port 0 of 192.0.2.1"),
        (["--streams", "a b:1"], "'a b' at 'streamName'"),
    ],
)
def test_what_keeps_the_server_from_starting_is_one_line_and_exit_1(
    options: list[str], said: str
) -> None:
    assert said in failure("--port", "0", *options)


def failure(*options: str) -> str:
    """The one line of a command that does not start. It leaves the signals of its process alone."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    result = CliRunner().invoke(app, ["local", *options])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize(("bind", "url"), [("::1", "http://[::1]:"), ("::", "http://[::1]:")])
def test_a_server_may_listen_on_ipv6(bind: str, url: str) -> None:
    try:
        server = LocalServer(bind=bind).start()
    except LocalServerError as error:
        pytest.skip(str(error))
    with server:
        assert server.endpoint_url.startswith(url)
        assert server.client("kinesis").list_streams()["StreamNames"] == []


def test_a_port_in_use_is_one_line_and_exit_1() -> None:
    with LocalServer() as server:
        port = server.endpoint_url.rpartition(":")[2]
        assert f"port {port}" in failure("--port", port)


def test_importing_the_command_imports_neither_spark_nor_a_server() -> None:
    code = (
        "import sys, sparkinesis.cli.app;"
        "print([m for m in ('pyspark', 'moto', 'uvicorn', 'boto3') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_without_the_extra_starting_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.modules['uvicorn.config'] = None\n"
        "from sparkinesis.local import LocalServer\n"
        "LocalServer().start()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "pip install 'sparkinesis[local]'" in result.stderr.splitlines()[-1]
