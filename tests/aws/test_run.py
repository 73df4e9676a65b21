"""The whole check against the local server. No test calls AWS: each gives an endpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.reading.budget import Pace
from tests.aws.__main__ import GOOD, INTERRUPTED, NOT_RUN, main
from tests.aws.findings import Verdict, findings
from tests.aws.probes import tip
from tests.aws.run import PROBES, QUESTIONS, Outcome, run
from tests.aws.target import Target
from tests.documents import ROOT
from tests.failing import Failing
from tests.pace import seconds

UNLIMITED = Pace(0, 0)
REGION = "us-east-1"
NEVER = {"tip.late_behind_ms", "position.trimmed"}
"""What the local server cannot show: it is never behind, and no record is a day old."""


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of a test ends at a closed port of this machine, and not at AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def faults() -> list[Any]:
    """Fault plans; a test adds its own."""
    return []


@pytest.fixture
def server(faults: list[Any]) -> Iterator[LocalServer]:
    def plan(call: Call) -> Fault | None:
        return next((fault for one in faults if (fault := one(call)) is not None), None)

    with LocalServer(limits=False, faults=plan, dynamodb=True) as running:
        yield running


NOT_YOU = Fault.error("AccessDeniedException", "not you")


def check(server: LocalServer, *names: str, seconds_: float = 600.0) -> Outcome:
    return run(
        Target(REGION, server.endpoint_url),
        "me",
        seconds=seconds_,
        note=lambda _: None,
        probes=[probe for probe in PROBES if not names or probe.name in names],
        pace=UNLIMITED,
    )


def left_on(server: LocalServer) -> list[str]:
    streams = server.client("kinesis").list_streams()["StreamNames"]
    tables = server.client("dynamodb").list_tables()["TableNames"]
    return [*streams, *tables]


def verdicts(outcome: Outcome) -> Mapping[str, Verdict]:
    return {one.question.key: one.verdict for one in findings(QUESTIONS, outcome.answers)}


def test_the_local_server_answers_as_the_code_assumes(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tip.measure, "__defaults__", (1.0,))
    outcome = check(server)
    assert left_on(server) == []
    found = verdicts(outcome)
    otherwise = {key: outcome.answers[key] for key in found if found[key] is not Verdict.AS_ASSUMED}
    assert otherwise.keys() == NEVER
    assert outcome.used.shards == 7, "two, a split, a merge, and a stream that is made twice"
    assert 0 < outcome.used.puts < 5000


def test_a_probe_that_fails_ends_neither_the_others_nor_the_removal(
    server: LocalServer, faults: list[Any]
) -> None:
    faults.append(Failing("SplitShard", then=NOT_YOU))
    outcome = check(server, "reshard", "table")
    assert "not you" in outcome.answers["reshard.last_page"].note
    assert outcome.answers["reshard.last_page"].value is None
    assert outcome.answers["table.one_wins"].value == 1
    assert left_on(server) == []


def test_a_stream_that_was_made_although_the_call_failed_is_removed(
    server: LocalServer, faults: list[Any]
) -> None:
    failed = Fault(code="InternalFailure", status=500, takes_effect=True)
    faults.append(Failing("CreateStream", then=failed))
    outcome = check(server, "table")
    assert "no stream could be made" in outcome.answers["table.one_wins"].note
    assert left_on(server) == []


def test_the_time_limit_ends_the_probes_and_all_is_removed(server: LocalServer) -> None:
    outcome = check(server, "order", "table", seconds_=0.001)
    assert {answer.value for answer in outcome.answers.values()} == {None}
    assert "the time limit" in outcome.answers["table.one_wins"].note
    assert left_on(server) == []


def test_what_cannot_be_removed_is_said(server: LocalServer, faults: list[Any]) -> None:
    faults.append(Failing("DeleteStream", then=NOT_YOU))
    outcome = check(server, "table")
    ((resource, why),) = outcome.not_removed.items()
    assert resource.name in left_on(server)
    assert "not you" in why


class Check:
    """The command, as a process of its own."""

    def __init__(self, server: LocalServer, *arguments: str, prefix: str = "me") -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.aws", "--stream-prefix", prefix),
                *("--endpoint", server.endpoint_url, *arguments),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[str] = []

    def wait_for(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was not printed: {''.join(self.lines)}")

    def end(self) -> int:
        rest, _ = self.process.communicate(timeout=seconds(180))
        self.lines += rest.splitlines(keepends=True)
        return self.process.returncode


def test_a_second_ctrl_c_does_not_stop_the_removal(server: LocalServer, faults: list[Any]) -> None:
    faults.append(Failing("DeleteStream", then=Fault(delay_ms=1500)))
    one = Check(server, "--probe", "position")
    one.wait_for("s  stream me-")
    one.process.send_signal(signal.SIGINT)
    one.wait_for("removing stream me-")
    one.process.send_signal(signal.SIGINT)
    one.wait_for("still removing")
    assert one.end() == INTERRUPTED
    assert left_on(server) == []


def test_what_a_killed_run_has_left_is_said_and_removed_by_its_tag(
    server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="me-sparkinesis-check-not-tagged", ShardCount=1)
    kinesis.create_stream(StreamName="me-orders", ShardCount=1)
    theirs = left_on(server)
    one = Check(server, "--probe", "position")
    one.wait_for("s  stream me-")
    one.process.kill()
    one.end()
    left = min(set(left_on(server)) - set(theirs))
    # It may be of a run that goes on: only --clean-up removes it.
    assert main(arguments(server, "--probe", "table")) == GOOD
    captured = capsys.readouterr()
    assert f"{left} is of another run" in captured.err
    assert "8 as assumed, 0 NOT as assumed, 0 not measured" in captured.out
    assert "At most $0.0000" in captured.out, "a server on this machine costs nothing"
    assert left in left_on(server)
    for removed in (left, "nothing is left"):
        assert main(arguments(server, "--clean-up")) == GOOD
        assert removed in capsys.readouterr().err
    assert set(left_on(server)) == set(theirs)


def arguments(server: LocalServer, *more: str) -> list[str]:
    return ["--stream-prefix", "me", "--endpoint", server.endpoint_url, *more]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--stream-prefix", ""], "STREAM_PREFIX is ''"),
        (["--stream-prefix", "a b"], "STREAM_PREFIX is 'a b'"),
        (["--stream-prefix", "me", "--minutes", "0"], "--minutes is 0"),
        (["--stream-prefix", "me", "--region", "Frankfurt"], "region is 'Frankfurt'"),
    ],
)
def test_wrong_arguments_are_refused_before_any_call(
    given: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == NOT_RUN
    error = capsys.readouterr().err
    assert error.startswith("Nothing was made: ")
    assert why in error


def test_without_an_answer_nothing_is_made_and_the_bound_was_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target is "AWS", with the account of a stand-in for STS: nothing else is called."""
    monkeypatch.setattr(Target, "account", lambda _: "AWS account 123456789012, eu-west-1")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["--stream-prefix", "me", "--region", "eu-west-1"]) == NOT_RUN
    error = capsys.readouterr().err
    assert "me-sparkinesis-check-*,\nin AWS account 123456789012, eu-west-1" in error
    assert "costs at most $0.11" in error
    assert "give --yes" in error


def test_a_service_that_cannot_be_called_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """STS is asked at the closed port of `no_aws`."""
    assert main(["--stream-prefix", "me", "--region", "eu-west-1", "--yes"]) == NOT_RUN
    error = capsys.readouterr().err
    assert "Nothing was made: AWS cannot be called: " in error
    assert len(error.splitlines()) == 1
