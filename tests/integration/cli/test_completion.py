"""What bash completes after the command `sparkinesis`, by the script that the command prints."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sparkinesis.local import LocalServer
from tests import pace
from tests.command import COMMAND

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")

SCRIPT = """
eval "$SCRIPT_OF_BASH"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
function=$(complete -p sparkinesis | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
$function sparkinesis
printf '%s\\n' "${COMPREPLY[@]}"
"""


@functools.cache
def script_of(shell: str) -> str:
    """Return what a shell reads when it starts. (--show-completion asks which shell this is.)"""
    variable = {"_SPARKINESIS_COMPLETE": f"source_{shell}"}
    result = subprocess.run(
        [COMMAND], env={**os.environ, **variable}, capture_output=True, text=True, check=True
    )
    return result.stdout


KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}


@pytest.fixture(scope="module", autouse=True)
def patience(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Has the command wait for answers for longer than a second, which a busy machine may take."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(
        "from sparkinesis.cli import command_options\ncommand_options._PATIENCE = 60.0\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as running:
        kinesis = running.client("kinesis")
        for name in ("flights", "fluids", "other"):
            kinesis.create_stream(StreamName=name, ShardCount=1)
        dynamodb = running.client("dynamodb")
        for name in ("delays", "delays-CoordinatorState", "delays-WorkerMetricStats", "totals"):
            dynamodb.create_table(
                TableName=name,
                KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        yield running


def completed(*words: str, home: Path, environment: Mapping[str, str] = KEYS) -> list[str]:
    """What bash has to offer, which has the words as it splits them."""
    assert BASH is not None
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        [BASH, "--norc", "-c", SCRIPT, "bash", "sparkinesis", *words],
        env={
            **kept,
            "SCRIPT_OF_BASH": script_of("bash"),
            "PATH": path,
            "HOME": str(home),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == "", "a shell would show it within the line"
    assert list(home.rglob("*")) == [path for path in home.rglob("*") if ".aws" in str(path)]
    return result.stdout.split()


def endpoint(server: LocalServer) -> list[str]:
    scheme, slashes, port = server.endpoint_url.split(":")
    return ["--endpoint", scheme, ":", slashes, ":", port]


def test_commands_options_and_choices(tmp_path: Path) -> None:
    assert completed("rese", home=tmp_path) == ["reset"]
    assert completed("leases", "--dyn", home=tmp_path) == ["--dynamodb-endpoint"]
    assert completed("convert-leases", "app", "--to", "", home=tmp_path) == ["several", "single"]


def test_applications_streams_and_profiles(server: LocalServer, tmp_path: Path) -> None:
    at = endpoint(server)
    assert completed("top", *at, "", home=tmp_path) == ["delays", "totals"]
    assert completed("top", *at, "to", home=tmp_path) == ["totals"]
    assert completed("top", *at, "app", "--stream", "fl", home=tmp_path) == ["flights", "fluids"]
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[profile home]\n[profile work]\n")
    assert completed("top", "--profile", "w", home=tmp_path) == ["work"]


def test_nobody_is_asked_for_a_code(server: LocalServer, tmp_path: Path) -> None:
    """A role that needs a code of a device has botocore ask for it on the terminal."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[profile own]\naws_access_key_id = x\naws_secret_access_key = x\n"
        "[profile admin]\nsource_profile = own\nmfa_serial = arn:aws:iam::123456789012:mfa/me\n"
        "role_arn = arn:aws:iam::123456789012:role/admin\n"
    )
    line = ["top", "--profile", "own", *endpoint(server), "d"]
    assert completed(*line, home=tmp_path, environment={}) == ["delays"]
    line = ["top", "--profile", "admin", *endpoint(server), "d"]
    assert completed(*line, home=tmp_path, environment={}) == []


def test_the_environment_says_where_to_ask_if_the_line_does_not(
    server: LocalServer, tmp_path: Path
) -> None:
    where = {"AWS_ENDPOINT_URL": server.endpoint_url, "AWS_REGION": "us-east-1", **KEYS}
    assert completed("leases", "de", home=tmp_path, environment=where) == ["delays"]


def test_nothing_is_completed_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    assert completed("leases", "", home=tmp_path, environment={}) == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        given = {"AWS_ENDPOINT_URL": where, "AWS_REGION": "us-east-1", **KEYS}
        assert completed("leases", "", home=tmp_path, environment=given) == []
        assert time.monotonic() - began < pace.seconds(6)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts_and_answers(shell: str, tmp_path: Path) -> None:
    assert "_SPARKINESIS_COMPLETE" in script_of(shell)
    line = {
        "_SPARKINESIS_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "sparkinesis res",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    result = subprocess.run(
        [COMMAND],
        check=False,
        env={**os.environ, **line, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "reset" in result.stdout
    assert result.stderr == ""
