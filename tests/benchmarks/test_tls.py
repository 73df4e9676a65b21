"""Benchmarks over TLS: servers have a certificate of the run, and all clients trust it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from benchmarks import __main__ as command
from benchmarks import tls
from benchmarks.filled_server import filled_server
from benchmarks.local_server import Client, local_kinesis
from benchmarks.peers import processes
from benchmarks.peers.spark import running as spark
from benchmarks.peers.spark.competitors import Competitor
from benchmarks.peers.spark.server import serving as serving_spark
from benchmarks.report import Result, print_table, write_json
from benchmarks.shards_server import serving as serving_shards
from sparkinesis.local import ManualClock


@pytest.fixture
def over_tls() -> Iterator[None]:
    with tls.over_tls():
        yield


def make(kinesis: Any, _: ManualClock) -> None:
    kinesis.create_stream(StreamName="s", ShardCount=1)


@pytest.mark.usefixtures("over_tls")
def test_a_server_and_its_clients_speak_tls() -> None:
    with filled_server(make) as endpoint:
        assert endpoint.startswith("https://")
        client = Client(endpoint)
        assert client.call("ListStreams")["StreamNames"] == ["s"]
        client.close()
        its = boto3.client(
            "kinesis",
            region_name="us-east-1",
            endpoint_url=endpoint,
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        assert its.list_streams()["StreamNames"] == ["s"]
        its.close()


@pytest.mark.usefixtures("over_tls")
def test_the_command_is_started_with_the_certificate() -> None:
    with local_kinesis() as client:
        assert client.endpoint.startswith("https://")
        assert client.call("ListStreams")["StreamNames"] == []


@pytest.mark.usefixtures("over_tls")
def test_servers_of_other_processes_speak_tls() -> None:
    with serving_spark(limits=False) as server:
        assert server.endpoint.startswith("https://")
        assert server.client.call("ListStreams")["StreamNames"] == []
    with serving_shards(has_moto=False) as shards:
        assert shards.endpoint.startswith("https://")


def test_without_the_option_there_is_no_tls() -> None:
    assert tls.server_options() == []
    with local_kinesis() as client:
        assert client.endpoint.startswith("http://")


def test_the_environment_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tls.BOTO3S, "own.pem")
    before = dict(os.environ)
    with tls.over_tls():
        file = Path(os.environ[tls.BOTO3S])
        assert file.exists()
        assert os.environ["SSL_CERT_FILE"] == tls.certificate() == str(file)
    assert dict(os.environ) == before
    assert not file.exists()


@pytest.mark.usefixtures("over_tls")
def test_consumers_and_queries_are_told_what_to_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "own")
    for environment in (
        processes.environment("https://x"),
        spark.environment(Competitor("ours"), "/folder"),
    ):
        assert environment[tls.BOTO3S] == tls.certificate()
        assert "AWS_PROFILE" not in environment


@pytest.mark.usefixtures("over_tls")
def test_a_jvm_trusts_the_certificate() -> None:
    options = dict(
        each.removeprefix("-Djavax.net.ssl.").split("=")
        for each in os.environ["JAVA_TOOL_OPTIONS"].split()
    )
    assert sorted(options) == ["trustStore", "trustStorePassword", "trustStoreType"]
    store = pkcs12.load_pkcs12(
        Path(options["trustStore"]).read_bytes(), options["trustStorePassword"].encode()
    )
    assert [each.friendly_name for each in store.additional_certs] == [b"run"]


def test_tables_and_files_say_that_figures_are_over_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [Result("rows", 1, "s")]
    print_table("source", results)
    write_json(results, tmp_path / "plain.json")
    with tls.over_tls():
        print_table("source", results)
        write_json(results, tmp_path / "tls.json")
    plain, secured = capsys.readouterr().out.split("source")[1:]
    assert not plain.startswith(", over TLS")
    assert secured.startswith(", over TLS")
    written = [json.loads((tmp_path / name).read_text()) for name in ("plain.json", "tls.json")]
    assert [each["tls"] for (each,) in written] == [False, True]


def test_the_option_stands_anywhere_and_is_for_benchmarks_with_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran: list[tuple[str, str]] = []

    def run(name: str) -> list[Result]:
        ran.append((name, tls.note()))
        return []

    monkeypatch.setattr(command, "OUTPUT", tmp_path / "out.json")
    for name in ("call", "source"):
        monkeypatch.setitem(command.BENCHMARKS, name, partial(run, name))
    assert command.main(["source", "--tls", "call"]) == 0
    assert command.main(["call"]) == 0
    assert ran == [("source", ", over TLS"), ("call", ", over TLS"), ("call", "")]
    capsys.readouterr()
    assert command.main(["--tls", "decode"]) == 2
    assert "No benchmark decode; there are: call, source," in capsys.readouterr().out
