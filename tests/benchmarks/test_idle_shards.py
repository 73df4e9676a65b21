"""The benchmarks of idle and of busy shards: their arithmetic, and one small run of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import growth, idle_shards
from benchmarks.idle_shards import AIMS, SHARDS, Case, measure, pace, results
from benchmarks.peers.environments import ROOT
from benchmarks.shards_server import Server, serving
from sparkinesis.local.faults import CallRecord


def call(time_ms: int, shard: str, operation: str = "GetRecords", error: str = "") -> CallRecord:
    return CallRecord(time_ms, operation, "us-east-1", "stream", shard, 0, 0, error or None)


def test_the_pace_of_shards() -> None:
    calls = [
        *(call(at, "a") for at in (0, 1000, 2400)),
        *(call(at, "b") for at in (100, 500, 1099, 1100)),
        call(1200, "c", error="ProvisionedThroughputExceededException"),
        call(1300, "c", operation="GetShardIterator", error="LimitExceededException"),
    ]
    found = pace(calls, 4, 2.5)
    assert found == {
        "refused calls": 1,
        "GetRecords a second and shard, least": 0.0,  # the fourth shard was not read
        "GetRecords a second and shard, most": 4 / 2.5,
        "GetRecords in one second and shard, most": 3,
        "largest gap between GetRecords of a shard": 1.4,
    }
    assert pace([call(0, "a", operation="SubscribeToShard")], 1, 1.0) == {"refused calls": 0}


def test_the_aims_are_those_of_a_thousand_shards() -> None:
    once = {"CPU": 0.2, "threads": 126.0, "GetRecords in one second and shard, most": 2.0}
    twice = {**once, "CPU": 0.3}
    samples = [("", "efo", once), ("v0.1", "efo", once), ("", "efo", twice)]
    found = {each.name: each for each in results(samples, SHARDS)}
    cpu = found["fan-out: CPU"]
    assert (cpu.value, cpu.ratio, cpu.ok) == (0.25, AIMS["CPU"] / 0.25, True)
    assert cpu.note == "0.2 - 0.3"
    assert not found["fan-out: threads"].ok
    older = found["fan-out: threads, v0.1"]
    assert (older.ratio, older.ok) == (0.5, True), "an older revision has to reach nothing"
    few = {each.name: each for each in results(samples, 10)}
    assert few["fan-out: CPU"].ratio is None
    assert few["fan-out: GetRecords in one second and shard, most"].ratio == 2.5


def test_options_follow_the_name_of_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = []

    def run(*arguments: object) -> list[object]:
        given.append(arguments)
        return []

    monkeypatch.setattr(idle_shards, "run", run)
    options = ["--shards", "5", "--seconds", "2", "--rounds", "3", "--only", "efo"]
    options += ["--also", "v0.1", "--json", str(tmp_path / "x.json")]
    assert command.main(["idle_shards", *options]) == 0
    assert given == [(5, 2.0, 3, ["v0.1"], ["efo"])]
    assert (tmp_path / "x.json").read_text() == "[]\n"
    assert command.main(["idle-shards"]) == 2
    assert "No benchmark idle-shards" in capsys.readouterr().out


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_a_worker_is_measured(
    server: Server, retrieval: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_shards, "SETTLE", 0.5)
    monkeypatch.setattr(idle_shards, "PUT_SECONDS", 0.5)
    found = measure(ROOT, server, f"few-{retrieval}", Case(retrieval, 3, 2.5))
    assert found["records lost"] == 0
    assert found["refused calls"] == 0
    assert found["threads"] >= 3
    assert found["threads at the start, most"] >= 3
    assert 5 < found["PSS"] <= found["RSS"] < 1000, "PSS counts a page that ten share as a tenth"
    assert 0 < found["CPU"] < 4
    assert found["put to process_records, median"] > 0
    assert ("GetRecords a second and shard, least" in found) == (retrieval == "polling")


@pytest.mark.long
@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_a_worker_is_measured_while_each_shard_has_a_record_a_second(
    retrieval: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "SETTLE", 0.5)
    with serving(has_moto=False) as own:
        found = growth.measure(ROOT, own, growth.Case(2, 2), retrieval, 2.5)
    assert found["records lost"] == 0
    rate = found["GetRecords" if retrieval == "polling" else "events"]
    assert 3 < rate < 5, "four shards have a record a second each"
    assert found["calls of the lease table"] > 0
    assert 0 < found["CPU of a record"] < 1000
    assert found["put to process_records, median"] > 0
