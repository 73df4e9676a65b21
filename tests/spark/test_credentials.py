"""Reading as a role: driver and executors each assume it, and no secret is written anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkinesis.local import LocalServer
from tests import pace
from tests.spark.assumed_role_queries import LOGGING, ROLE
from tests.sts import RecordedSts, recorded_sts

EXTERNAL_ID = "external-id-5b1d0e"
OWN = {
    "AWS_ACCESS_KEY_ID": "AKIAOWNKEYOFTHEDRIVR",
    "AWS_SECRET_ACCESS_KEY": "own-secret-key-c41f7a",
    "AWS_SESSION_TOKEN": "own-session-token-90d2e6",
}


@dataclass(frozen=True)
class Run:
    server: LocalServer
    sts: RecordedSts
    output: str
    """Standard output and error of all processes."""
    folder: Path

    def processes(self, session: str) -> Counter[str]:
        """How often each process assumed the role."""
        return Counter(
            re.findall(rf"pid=(\d+) .*Assumed the role {ROLE} as {session} ", self.output)
        )

    def signers(self, stream: str) -> set[str | None]:
        calls = self.server.kinesis.calls.select(stream=stream)
        return {call.access_key for call in calls} - {"local"}

    def told(self, session: str) -> str:
        """What the user of a failed query is told."""
        return self.output.partition(f"FAILED {session}: ")[2].partition("\nFAILED ")[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("role")
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(LOGGING)
    with (
        LocalServer(port=0, limits=False, dynamodb=True) as server,
        recorded_sts(server.endpoint_url) as sts,
    ):
        sts.lifetimes["short"] = 60.0  # botocore renews such at every use
        sts.allowed.update({"refused": 0, "refused-to-executors": 1})
        for name in ("long", "short"):
            server.client("kinesis").create_stream(StreamName=name, ShardCount=2)
        program = [sys.executable, "-m", "tests.spark.assumed_role_queries"]
        done = subprocess.run(
            [*program, server.endpoint_url, sts.endpoint_url, EXTERNAL_ID, str(folder)],
            env={
                **os.environ,
                **OWN,
                "PYTHONPATH": os.pathsep.join([str(site), *sys.path]),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=pace.seconds(120),
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        yield Run(server, sts, done.stdout, folder)


def test_driver_and_executors_assume_the_role_each_once(run: Run) -> None:
    processes = run.processes("long")
    # The planner, and one or two of the workers that read the two shards, twice.
    assert 2 <= len(processes) <= 3, processes
    assert set(processes.values()) == {1}
    assert run.signers("long") >= set(run.sts.access_keys("long"))
    assert len(run.sts.access_keys("long")) == len(processes)
    assert OWN["AWS_ACCESS_KEY_ID"] not in run.signers("long") | run.signers("short")
    asked = run.server.kinesis.calls.select("AssumeRole")
    assert {call.access_key for call in asked} == {OWN["AWS_ACCESS_KEY_ID"]}
    assert {a.request["ExternalId"] for a in run.sts.assumed} == {EXTERNAL_ID}


def test_driver_and_executors_renew_what_is_about_to_expire(run: Run) -> None:
    processes = run.processes("short")
    assert 2 <= len(processes) <= 3, processes
    assert all(times >= 2 for times in processes.values()), processes
    assert len(run.signers("short")) >= sum(processes.values()) / 2
    assert run.signers("short") <= set(run.sts.access_keys("short"))


def test_a_refusal_on_the_driver_and_on_an_executor_says_what_to_do(run: Run) -> None:
    assert "StreamNotFoundError: There is no stream 'none'" in run.told("missing")
    for session in ("refused", "refused-to-executors"):
        said = run.told(session)
        assert f"AccessDeniedError: Not allowed to assume the role {ROLE}" in said, session
        assert "must equal the external id that is set" in said
    assert len(run.sts.select("refused-to-executors")) == 1


def test_no_secret_is_in_the_checkpoint_plan_errors_or_logs(run: Run) -> None:
    # What is searched is there: plans, errors, events, and the logs of Spark and of Python.
    for present in ("ExternalId=*********(redacted)", "FAILED", " INFO ", "sparkinesis.stream"):
        assert present in run.output
    assert len(run.sts.secrets) > 3 * 3
    secrets = {*run.sts.secrets, *OWN.values(), EXTERNAL_ID}
    texts = {"output": run.output.encode()}
    texts.update({str(p): p.read_bytes() for p in run.folder.rglob("*") if p.is_file()})
    assert any("/offsets/1" in name for name in texts)
    assert any("/events/" in name and text for name, text in texts.items())
    found = [(name, s) for name, text in texts.items() for s in secrets if s.encode() in text]
    assert found == []
