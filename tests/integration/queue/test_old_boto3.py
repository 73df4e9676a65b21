"""A boto3 that does not know queues is told before anything is called, and all else works with it.

`make compat` runs this module with the oldest boto3, too, which is then the one that is installed.
"""

from __future__ import annotations

import boto3
import botocore
import pytest

from sparkinesis import Application
from sparkinesis.errors import ServiceError
from sparkinesis.local import LocalServer
from sparkinesis.queue import QueueApplication
from sparkinesis.queue.finding import Queues
from tests.command import call
from tests.pace import eventually
from tests.scripted import Script

REGION = "eu-west-1"


def application(endpoint: str) -> QueueApplication:
    return QueueApplication("orders", lambda _: None, region=REGION, endpoint=endpoint)


@pytest.mark.parametrize("version", ["1.37.0", "1.44.4", "1.9.99", "0.99"])
def test_an_older_one_is_told_before_anything_is_called(
    script: Script, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(botocore, "__version__", version)
    with pytest.raises(ServiceError) as raised:
        application(script.endpoint).worker()
    told = str(raised.value)
    assert f"Queues need boto3 1.44.5 or newer, and botocore {version} is installed" in told
    assert "pip install 'boto3>=1.44.5'" in told
    assert script.calls == []
    listed = call("queues", "list", "--region", REGION, "--endpoint", script.endpoint)
    assert (listed.returncode, listed.stdout) == (1, "")
    assert listed.stderr == f"sparkinesis queues list: {told}\n"
    assert script.calls == []


@pytest.mark.parametrize("version", ["1.44.5", "1.44.10", "1.45.0", "2.0.0", "1.44.5.dev1"])
def test_a_newer_one_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(botocore, "__version__", version)
    Queues(REGION)


def test_the_bound_is_that_of_the_model_and_all_else_works() -> None:
    """With whichever boto3 is installed."""
    seen: list[bytes] = []
    with LocalServer(limits=None) as server:
        kinesis = server.client("kinesis", REGION)
        kinesis.create_stream(StreamName="s", ShardCount=1)
        kinesis.put_record(StreamName="s", Data=b"a", PartitionKey="k")
        worker = Application(
            "app",
            "s",
            lambda batch: seen.extend(record.data for record in batch),
            REGION,
            endpoint=server.endpoint_url,
            initial_position="trim_horizon",
        ).worker()
        worker.start()
        eventually(lambda: seen == [b"a"])
        assert worker.shutdown(60)
        told = ""
        try:
            Queues(REGION, server.endpoint_url).all()
        except ServiceError as error:
            told = str(error)
    model = boto3.Session("x", "x", region_name=REGION).client("kinesis")
    assert bool(told) is not hasattr(model, "receive_queue_records"), told
    assert told == "" or "Queues need boto3 1.44.5 or newer" in told
