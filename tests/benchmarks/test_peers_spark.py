"""What the comparison with awslabs' Spark connector concludes from its rounds."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

import pytest

from benchmarks.local_server import Client
from benchmarks.peers.__main__ import main as peers
from benchmarks.peers.spark import command, producer
from benchmarks.peers.spark.backlog import task_of
from benchmarks.peers.spark.competitors import JSON, Competitor, of_backlog
from benchmarks.peers.spark.processes import Cpu, Meter
from benchmarks.peers.spark.records import BACKLOGS, SHARDS, Backlog, fill
from benchmarks.peers.spark.rounds import Runs, alternating, ratio, results, spread
from benchmarks.peers.spark.running import ROOT, QueryFailedError, environment
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


def test_a_ratio_above_one_means_that_ours_is_better() -> None:
    assert ratio("rows/s", ours=300, theirs=200) == 1.5
    assert ratio("CPU s", ours=2, theirs=3) == 1.5
    assert ratio("records lost", ours=0, theirs=3) is None


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


def test_the_connector_runs_as_the_page_says() -> None:
    plain, in_json = Competitor("peer", JAR), Competitor("peer", JAR, cbor=False)
    assert plain.session() == {"spark.jars": "connector.jar"}
    assert in_json.session() == {"spark.driver.extraJavaOptions": JSON, **plain.session()}
    options = plain.options("http://h", "s")
    assert options["kinesis.startingPosition"] == "TRIM_HORIZON"
    assert options["kinesis.failOnDataLoss"] == "true"
    assert plain.backlog_options(500, 1_000) == {}
    assert Competitor("peer", JAR, tuned=True).backlog_options(500, 1_000) == {
        "kinesis.maxFetchRecordsPerShard": "500",
        "kinesis.getRecords.numberOfRecordsPerFetch": "2000",
        "kinesis.getRecords.fetchIntervalMs": "0",
    }


def test_what_a_process_took_that_has_ended_is_kept() -> None:
    meter = Meter(2)
    root = Stat("java", 1, own=1, started=0)
    meter.add({2: root, 3: Stat("python", 2, own=8, started=1)})
    assert meter.add({2: root}) == Cpu(1, 8)
    again = Stat("python", 2, own=2, started=9)
    assert meter.add({2: root, 3: again}) == Cpu(1, 10), "the same id, another process"


@pytest.mark.parametrize("per_aggregate", [1, 3])
def test_a_filled_stream_has_as_many_rows_in_each_shard(per_aggregate: int) -> None:
    backlog = Backlog("small", "small", 10, 500 if per_aggregate == 1 else 300, per_aggregate)
    with LocalServer(limits=False) as server:
        client = Client(server.endpoint_url)
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


def test_all_is_measured_unless_some_is_named() -> None:
    every = command.arguments([])
    assert (tuple(every.only), every.rounds, every.scale) == (command.PARTS, 5, 1)
    assert every.backlogs == ["1kb", "200b", "kpl", "20kb"]
    assert every.ways == ["tuned-json", "tuned-cbor", "defaults-json"]
    assert (every.columns, every.tls) == ((), False)
    words = "--only idle,twice --backlogs 1kb,kpl --ways tuned-cbor --also a --also b"
    words += " --columns partitionKey,data --tls"
    chosen = command.arguments(words.split())
    assert (chosen.only, chosen.backlogs) == (["idle", "twice"], ["1kb", "kpl"])
    assert (chosen.ways, chosen.also) == (["tuned-cbor"], ["a", "b"])
    assert (chosen.columns, chosen.tls) == (("partitionKey", "data"), True)


def test_the_connector_is_found_by_option_then_variable_then_folder(tmp_path: Path) -> None:
    environment = {command.VARIABLE: "b.jar"}
    assert command.connector(JAR, environment, tmp_path) == JAR
    assert command.connector(None, environment, tmp_path) == Path("b.jar")
    assert command.connector(None, {}, tmp_path) is None
    (tmp_path / "one.jar").touch()
    assert command.connector(None, {}, tmp_path) == tmp_path / "one.jar"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "idel"], "--only: no idel; there are: backlog, idle,"),
        (["--backlogs", "2kb"], "--backlogs: no 2kb; there are: 1kb, 200b, kpl, 20kb"),
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


def test_columns_are_named_where_the_source_has_an_option_for_them(tmp_path: Path) -> None:
    older, newer = tmp_path / "older", ROOT
    older.mkdir()
    found = of_backlog(JAR, [("older", older), ("newer", newer)], ["tuned-json"])
    assert [each.names_columns for each in found] == [True, False, True, False]
    rows, columns = BACKLOGS[0], ("partitionKey", "data")
    with serving(limits=False) as server:
        few = [task_of(each, server, rows, rows, columns) for each in found]
        every = task_of(found[0], server, rows, rows, ())
    named = [each.options.get("columns") for each in few]
    assert named == [each.warm.get("columns") for each in few] == ["partitionKey,data", None] * 2
    assert [each.columns for each in few] == [(), columns] * 2, "the others select them"
    assert "columns" not in every.options


def test_a_folder_is_measured_where_it_is(tmp_path: Path) -> None:
    with command.checked_out([str(tmp_path)]) as trees:
        assert trees == [(tmp_path.name, tmp_path)]


def test_calls_of_large_records_stay_below_the_services_limit() -> None:
    large = Backlog("large", "large", 20_000, 25_000)
    assert large.records_per_call == 200
    assert large.scaled(0.04).rows == 1_000


def test_a_query_imports_the_revision_that_is_measured(tmp_path: Path) -> None:
    before = environment(Competitor("ours", source=tmp_path), "/folder")
    assert before["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "src"), str(ROOT)]
    now = environment(Competitor("ours"), "/folder")
    assert now["PYTHONPATH"].split(os.pathsep) == [str(ROOT / "src"), str(ROOT)]
