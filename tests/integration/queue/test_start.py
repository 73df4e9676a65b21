"""docs/guides/queue-instead-of-leases.md: the program that says from when on a queue delivers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sparkinesis import Application
from sparkinesis.local import LocalServer
from tests.command import COMMAND
from tests.documents import DOCS, blocks
from tests.pace import eventually
from tests.streams import put, records_of, shard_ids

REGION = "eu-west-1"
PAGE = DOCS / "guides" / "queue-instead-of-leases.md"
(PROGRAM,) = (block.text for block in blocks(PAGE) if block.text.startswith("# start.py"))
MARGIN, SECOND = timedelta(minutes=1), timedelta(seconds=1)


class Trial:
    """The stream `flights` of two shards, and an application that has processed three records."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.kinesis: Any = server.client("kinesis", region=REGION)
        self.kinesis.create_stream(StreamName="flights", ShardCount=2)
        put(self.kinesis, "flights", [b"1", b"2", b"3"], "k")
        seen: list[bytes] = []
        worker = Application(
            "flights-app",
            "flights",
            lambda batch: seen.extend(record.data for record in batch),
            region=REGION,
            endpoint=server.endpoint_url,
            initial_position="trim_horizon",
        ).worker()
        worker.start()
        eventually(lambda: len(seen) == 3)
        assert worker.shutdown(60)

    def arrival_of(self, data: bytes) -> datetime:
        for shard in shard_ids(self.kinesis, "flights"):
            for record in records_of(self.kinesis, "flights", shard):
                if record["Data"] == data:
                    at: datetime = record["ApproximateArrivalTimestamp"]
                    return at
        raise AssertionError(data)

    def start(self, folder: Path) -> subprocess.CompletedProcess[str]:
        program = folder / "start.py"
        program.write_text(PROGRAM)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return subprocess.run(
            [sys.executable, program],
            env={
                **ours,
                "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}",
                "AWS_ENDPOINT_URL": self.server.endpoint_url,
                "AWS_REGION": REGION,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with LocalServer(limits=None) as server:
        yield Trial(server)


def now() -> datetime:
    return datetime.now(timezone.utc)


def instant(printed: str) -> datetime:
    return datetime.strptime(printed.strip(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def test_a_queue_begins_a_margin_before_the_first_record_that_is_not_processed(
    trial: Trial, tmp_path: Path
) -> None:
    before = now()
    ran = trial.start(tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert before - SECOND - MARGIN <= instant(ran.stdout) <= now() - MARGIN

    put(trial.kinesis, "flights", [b"4"], "k")
    first = trial.arrival_of(b"4")
    eventually(lambda: now() > first + 3 * SECOND)
    put(trial.kinesis, "flights", [b"5"], "k")
    began = now()
    ran = trial.start(tmp_path)
    assert ran.returncode == 0, ran.stderr
    # The lag is read a while after the clock, and parts of a second are cut off.
    early = now() - began + SECOND
    assert first - MARGIN - early <= instant(ran.stdout) <= first - MARGIN

    dynamodb: Any = trial.server.client("dynamodb", region=REGION)
    shard, _ = shard_ids(trial.kinesis, "flights")
    dynamodb.delete_item(TableName="flights-app", Key={"leaseKey": {"S": shard}})
    ran = trial.start(tmp_path)
    assert ran.returncode == 1
    assert "It is not known up to where each shard is processed." in ran.stderr
    assert ran.stdout == ""
