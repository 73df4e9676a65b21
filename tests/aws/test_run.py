"""The whole check against the local server. No test calls AWS: each gives an endpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.reading.budget import Pace
from tests.aws import __main__ as command
from tests.aws.__main__ import check, main, measure
from tests.aws.answer import AS_ASSUMED, Answer
from tests.aws.bench import Bench
from tests.aws.probes import lease_table, positions, reshard, tip
from tests.documents import ROOT
from tests.failing import Failing

REGION = "us-east-1"
NEVER = {"tip.late_behind_ms", "position.trimmed"}
"""What the local server cannot show: it is never behind, and no record is a day old."""
NOT_YOU = Fault.error("AccessDeniedException", "not you")


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of a test ends at a closed port of this machine, and not at AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(tip.probe, "__defaults__", (1.0,))


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


def bench(server: LocalServer, seconds: float = 600.0) -> Bench:
    return Bench(
        "me", REGION, server.endpoint_url, lambda _: None, seconds=seconds, pace=Pace(0, 0)
    )


def left_on(server: LocalServer) -> list[str]:
    streams = server.client("kinesis").list_streams()["StreamNames"]
    tables = server.client("dynamodb").list_tables()["TableNames"]
    return [*streams, *tables]


def test_the_local_server_answers_as_the_code_assumes(server: LocalServer) -> None:
    server.client("kinesis").create_stream(StreamName="me-orders", ShardCount=1)
    used = bench(server)
    answers: list[Answer] = []
    assert measure(used, answers) == []
    otherwise = {one.key: str(one) for one in answers if one.verdict != AS_ASSUMED}
    assert otherwise.keys() == NEVER, otherwise
    assert len({one.key for one in answers}) == len(answers) > 40
    for file in {file for one in answers for file in one.rests_on}:
        assert (ROOT / file).is_file(), file
    assert len(left_on(server)) == 4
    assert used.remove_all() == {}
    assert left_on(server) == ["me-orders"]


def test_a_probe_that_fails_ends_neither_the_others_nor_the_removal(
    server: LocalServer,
    faults: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults.append(Failing("SplitShard", then=NOT_YOU))
    monkeypatch.setattr(command, "PROBES", (reshard.probe, lease_table.probe))
    assert check(bench(server)) == 1
    captured = capsys.readouterr()
    assert "probe reshard failed" in captured.err
    assert "not you" in captured.err
    assert "`table.one_wins`" in captured.out
    assert left_on(server) == []


def test_a_stream_that_was_made_although_the_call_failed_is_removed(
    server: LocalServer, faults: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    failed = Fault(code="InternalFailure", status=500, takes_effect=True)
    faults.append(Failing("CreateStream", then=failed))
    faults.append(Failing("DeleteStream", Fault.error("ResourceInUseException", "being made")))
    assert check(bench(server)) == 1
    assert "no stream could be made" in capsys.readouterr().err
    assert left_on(server) == []


def test_the_time_limit_ends_the_probes_and_all_is_removed(
    server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    used = bench(server, seconds=1.0)
    assert check(used) == 1
    error = capsys.readouterr().err
    assert "the time limit was reached in probe at_timestamp" in error
    assert error.count("the time limit") == 1, "no other probe begins"
    assert left_on(server) == []


def test_what_cannot_be_removed_is_said(
    server: LocalServer,
    faults: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults.append(Failing("DeleteStream", then=NOT_YOU))
    monkeypatch.setattr(command, "PROBES", (lease_table.probe,))
    assert check(bench(server)) == 1
    [left] = left_on(server)
    assert f"NOT REMOVED: stream {left}: " in capsys.readouterr().err


def test_a_second_ctrl_c_does_not_stop_the_removal(
    server: LocalServer,
    faults: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(call: Call) -> None:
        if call.operation in {"GetShardIterator", "DeleteStream"}:
            os.kill(os.getpid(), signal.SIGINT)

    faults.append(interrupt)
    monkeypatch.setattr(command, "PROBES", (positions.probe,))
    assert check(bench(server)) == 130
    assert "still removing" in capsys.readouterr().err
    assert left_on(server) == []


@pytest.mark.parametrize("prefix", ["", "a b"])
def test_a_wrong_prefix_is_refused(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--stream-prefix", prefix])
    assert "it has 1 to 40 letters" in capsys.readouterr().err


def test_without_an_answer_nothing_is_made_and_the_bound_was_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account is a stand-in for STS: nothing else is called."""
    monkeypatch.setattr(command, "_account", lambda _: ("123456789012", "eu-west-1"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["--stream-prefix", "me", "--region", "eu-west-1"]) == 2
    error = capsys.readouterr().err
    assert "me-sparkinesis-check-*,\nin AWS account 123456789012, eu-west-1" in error
    assert "costs at most $0.11" in error
    assert "give --yes" in error


def test_a_service_that_cannot_be_called_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """STS is asked at the closed port of `no_aws`."""
    assert main(["--stream-prefix", "me", "--region", "eu-west-1", "--yes"]) == 2
    error = capsys.readouterr().err
    assert "Nothing was made: AWS cannot be called: " in error
    assert len(error.splitlines()) == 1
