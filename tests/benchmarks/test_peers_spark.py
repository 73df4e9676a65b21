"""What the comparison with awslabs' Spark connector concludes from its rounds."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.local_server import Client
from benchmarks.peers.__main__ import main as peers
from benchmarks.peers.spark import command, live, producer
from benchmarks.peers.spark.competitors import Competitor
from benchmarks.peers.spark.processes import Cpu, Meter
from benchmarks.peers.spark.query import Task
from benchmarks.peers.spark.records import SHARDS, Backlog, fill
from benchmarks.peers.spark.rounds import Runs, alternating, results, spread
from benchmarks.peers.spark.running import ROOT, Query, QueryFailedError, environment, running
from benchmarks.peers.spark.server import serving
from benchmarks.peers.spark.tally import losses
from benchmarks.proc_stat import Stat
from sparkinesis import deaggregate
from sparkinesis.local import LocalServer
from sparkinesis.stream.page import Record
from tests.streams import records_of, shard_ids

JAR = Path("connector.jar")


def test_lost_and_repeated_records_are_counted_apart() -> None:
    found = losses(6, [4, 0, 1, 4, 1, 4])
    assert (found.seen, found.lost, found.repeated) == (3, 3, 3)
    with pytest.raises(ValueError, match=r"never put: \[3\]"):
        losses(3, [0, 3])


def test_every_second_round_goes_backwards_and_a_failure_ends_no_other_round() -> None:
    turns: list[str] = []
    said: list[str] = []

    def measure(competitor: Competitor) -> dict[str, float]:
        turns.append(competitor.name)
        if turns == ["a", "b"]:
            raise QueryFailedError("no shard")
        return {"rows/s": float(len(turns))}

    runs = alternating([Competitor("a"), Competitor("b")], 2, measure, said.append)
    assert turns == ["a", "b", "b", "a"]
    assert runs == {"a": [{"rows/s": 1}, {"rows/s": 4}], "b": [{}, {"rows/s": 3}]}
    assert "round 1 of 2, b, failed: no shard" in said


def test_results_are_medians_beside_ours() -> None:
    runs: Runs = {
        "ours": [{"CPU s": 2.0}, {"CPU s": 8.0}, {"CPU s": 4.0}],
        "theirs": [{"CPU s": 6.0}, {}, {"CPU s": 10.0}],
        "none": [{}, {}, {}],
    }
    ours, theirs, none = results("1 KB", runs, "ours", {"CPU s": "s"})
    assert (ours.name, ours.value, ours.ratio) == ("1 KB: CPU s, ours", 4, None)
    assert (theirs.value, theirs.ratio) == (8, 2)
    assert (none.name, none.value, none.unit) == ("1 KB: none", 3, "failed")
    assert ours.note == "2 to 8 in 3 rounds"
    assert theirs.note == "6 to 10 in 2 rounds, 1 failed"
    assert spread([1.0], 1) == "1 round"


def test_the_jvm_is_counted_apart_from_the_rest_of_its_tree() -> None:
    meter = Meter(2)
    assert meter.add({}) == Cpu()
    stats = {
        1: Stat("python", 0, own=100, started=0),
        2: Stat("python", 1, own=1, started=0),
        3: Stat("java", 2, own=4, started=0),
        4: Stat("python", 3, own=16, started=0),
    }
    assert meter.add(stats) == Cpu(jvm=4, python=17)
    assert Cpu(4, 17) - Cpu(1, 2) == Cpu(3, 15)
    assert Cpu(4, 17).all == 21


def test_what_a_process_took_that_has_ended_is_kept() -> None:
    meter = Meter(2)
    root = Stat("java", 1, own=1, started=0)
    meter.add({2: root, 3: Stat("python", 2, own=8, started=1)})
    assert meter.add({2: root}) == Cpu(1, 8)
    again = Stat("python", 2, own=2, started=9)
    assert meter.add({2: root, 3: again}) == Cpu(1, 10), "the same id, another process"


def test_both_read_all_records_and_may_lose_none() -> None:
    ours = Competitor("ours").options("http://h", "s")
    theirs = Competitor("peer", JAR).options("http://h", "s")
    assert ours["initialPosition"] == "trim_horizon"
    assert theirs["kinesis.startingPosition"] == "TRIM_HORIZON"
    assert theirs["kinesis.failOnDataLoss"] == "true"


@pytest.mark.parametrize("per_aggregate", [1, 3])
def test_a_filled_stream_has_as_many_rows_in_each_shard(per_aggregate: int) -> None:
    backlog = Backlog("small", "small", 10, 500 if per_aggregate == 1 else 300, per_aggregate)
    with LocalServer(limits=False) as server:
        client = Client(int(server.endpoint_url.rpartition(":")[2]))
        fill(client, "s", backlog)
        client.close()
        kinesis = server.client("kinesis")
        for shard in shard_ids(kinesis, "s"):
            rows = deaggregate(
                [
                    Record(
                        data=each["Data"],
                        partition_key=each["PartitionKey"],
                        sequence_number=each["SequenceNumber"],
                    )
                    for each in records_of(kinesis, "s", shard)
                ]
            ).data.to_pylist()
            assert len(rows) == backlog.rows // SHARDS
            assert {len(data) for data in rows} == {10}


def test_a_reshard_leaves_every_number_in_the_stream_once() -> None:
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName="s", ShardCount=2)
        producer.put_numbers(server.client, "s", range(60), 10_000)
        producer.split(server.client, "s")
        assert len(producer.open_shards(server.client, "s")) == 3
        producer.merge(server.client, "s")
        producer.put_numbers(server.client, "s", range(60, 70), 10_000)
        assert len(producer.open_shards(server.client, "s")) == 2
        found = []
        for shard in server.client.call("ListShards", StreamName="s")["Shards"]:
            iterator = server.client.call(
                "GetShardIterator",
                StreamName="s",
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )["ShardIterator"]
            page = server.client.call("GetRecords", ShardIterator=iterator)
            found += [int(base64.b64decode(each["Data"])) for each in page["Records"]]
        calls = server.calls()
        assert server.calls() == {}
    assert sorted(found) == list(range(70))
    assert calls["SplitShard", "shardId-000000000000", None] == 1


def test_a_record_that_was_refused_is_put_again() -> None:
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName="s", ShardCount=1)
        large = [producer.entry("x" * 400_000, 0) for _ in range(4)]  # more than 1 MB/s
        producer.put_all(server.client, "s", large)
        calls = server.calls()
    assert sum(count for (name, _, _), count in calls.items() if name == "PutRecords") > 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "idel"], "--only: no idel; there are: backlog, idle,"),
        (["--backlogs", "2kb"], "--backlogs: no 2kb; there are: 1kb, 200b, kpl"),
        (["--rounds", "0"], "it must be 1 or more"),
        (["--scale", "2"], "it must be above 0 and at most 1"),
    ],
)
def test_wrong_arguments_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.arguments(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_connector_is_found_by_option_then_variable_then_folder(tmp_path: Path) -> None:
    environment = {command.VARIABLE: "b.jar"}
    assert command.connector(JAR, environment, tmp_path) == JAR
    assert command.connector(None, environment, tmp_path) == Path("b.jar")
    assert command.connector(None, {}, tmp_path) is None
    (tmp_path / "one.jar").touch()
    assert command.connector(None, {}, tmp_path) == tmp_path / "one.jar"
    (tmp_path / "two.jar").touch()
    assert command.connector(None, {}, tmp_path) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="says so elsewhere")
def test_without_a_connector_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.delenv(command.VARIABLE, raising=False)
    assert peers(["spark", "--only", "idle"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Nothing is measured: there is no jar of awslabs'")
    assert command.main(["--connector", str(tmp_path / "none.jar")]) == 2
    assert "There is no file" in capsys.readouterr().out


def telling(folder: Path, *lines: dict[str, Any] | None) -> Query:
    """A query that has told these lines; None: its process has ended."""
    told: queue.Queue[str | None] = queue.Queue()
    for line in lines:
        told.put(None if line is None else json.dumps(line))
    (folder / "log").write_text("java.lang.OutOfMemoryError")
    process = subprocess.Popen([sys.executable, "-c", ""], text=True)
    process.wait()
    return Query(process, told, folder / "log")


def test_batches_without_rows_are_passed_over(tmp_path: Path) -> None:
    empty: dict[str, Any] = {"batch": 0, "counted": None, "data": []}
    full = {"batch": 1, "counted": None, "data": ["7"]}
    counted = {"batch": 2, "counted": 3, "data": []}
    query = telling(tmp_path, {"starting": 1.0}, empty, full, empty, counted, empty)
    assert live.next_batch(query, 60) == full
    assert live.next_batch(query, 60) == counted
    assert live.next_batch(query, 0) is None


def test_a_query_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(QueryFailedError, match="no shard"):
        telling(tmp_path, {"failed": "no shard"}).next(60)
    with pytest.raises(QueryFailedError, match=r"process has ended: java.lang.Out"):
        telling(tmp_path, None).next(60)


def test_the_process_of_a_query_is_killed_with_its_children() -> None:
    with running(Competitor("ours"), Task("kinesis", {}, {})) as query:
        assert query.process.poll() is None
    assert query.process.poll() == -signal.SIGKILL


def test_a_query_imports_the_revision_that_is_measured(tmp_path: Path) -> None:
    before = environment(Competitor("ours", source=tmp_path), "/folder")
    assert before["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "src"), str(ROOT)]
    now = environment(Competitor("ours"), "/folder")
    assert now["PYTHONPATH"].split(os.pathsep) == [str(ROOT / "src"), str(ROOT)]
