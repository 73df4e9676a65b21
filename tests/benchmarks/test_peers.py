"""The comparison with peers, with sparkinesis alone: peers are not installed for tests."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import tls
from benchmarks.peers import costs, environments, steady
from benchmarks.peers.arguments import ALL, parsed
from benchmarks.peers.backlog import STOCKS, Cost, Run, cost, in_turn, samples
from benchmarks.peers.chart import OURS, Bar, Group, svg
from benchmarks.peers.competitors import PEERS, SPARKINESIS, before, unusable
from benchmarks.peers.environments import ROOT, checked_out
from benchmarks.peers.figures import Sample, figures
from benchmarks.peers.lease_tables import dynamodb, rows_of, taken, wait_for_leases
from benchmarks.peers.page import BEGIN, END, write
from benchmarks.peers.plots import drawn
from benchmarks.peers.processes import consumer
from benchmarks.peers.records import Backlog
from benchmarks.peers.report import Report, joined, print_report
from benchmarks.peers.server import counting_server
from sparkinesis import deaggregate
from sparkinesis.local import LocalServer
from sparkinesis.stream.page import Record


def test_without_arguments_all_is_measured_in_five_rounds() -> None:
    found = parsed([])
    assert found.cases == ALL == ("backlog", "start", "steady"), "costs repeats parts of these"
    assert (found.peers, found.rounds) == (PEERS, 5)
    assert (found.stocks, found.tls) == (STOCKS, False)


def test_some_backlogs_are_read_after_the_start() -> None:
    found = parsed(["--backlogs", "kpl,plain-1k", "--tls"])
    assert [each.stream for each in found.stocks] == ["start", "plain-1k", "kpl"]
    assert found.tls


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--only speed", "There is no case speed; there are: backlog"),
        ("--peers kcl-rs,gokini", "There is no peer gokini; there are: kcl-rs"),
        ("--backlogs kpl,tiny", "There is no backlog tiny; there are: plain-200,"),
        ("--rounds 0", "--rounds is 0; at least 1 is needed."),
        ("--scale 2", "--scale is 2; it must be above 0, and at most 1."),
    ],
)
def test_a_wrong_argument_is_explained(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(arguments.split())
    assert says in capsys.readouterr().err


def test_whoever_cannot_run_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    (kcl_rs,) = [each for each in PEERS if each.name == "kcl-rs"]
    assert unusable(kcl_rs, (3, 10)) == (
        "kcl-rs is left out: it needs Python 3.11, and this is 3.10."
    )
    assert unusable(kcl_rs, (3, 11)) is None
    monkeypatch.setenv("PATH", "")
    assert unusable(replace(kcl_rs, needs_java=True), (3, 11)) == (
        "kcl-rs is left out: it needs Java, and there is no command java."
    )


BY_NAME = {each.name: each for each in (SPARKINESIS, *PEERS)}


def test_each_record_has_a_number_of_its_own_and_the_size() -> None:
    backlog = Backlog(3, 30, 40)
    found = [each for shard in range(3) for each in backlog.of_shard(shard)]
    assert {len(each) for each in found} == {40}
    numbers = [int.from_bytes(each[:8], sys.byteorder) for each in found]
    assert sorted(numbers) == list(range(30))


def test_backlogs_are_read_by_one_retrieval_if_wanted() -> None:
    for retrieval, is_fan_out in (("fan-out", True), ("polling", False)):
        found = parsed(["--retrieval", retrieval]).stocks
        assert [each.stream for each in found] == [each.stream for each in STOCKS]
        assert {each.fan_out for stock in found for each in stock.readings} == {is_fan_out}
        cases = {each.case for stock in found for each in stock.readings}
        assert {each.start for stock in found for each in stock.readings} <= cases


def test_the_user_records_of_aggregates_have_hash_keys_of_their_shard() -> None:
    backlog = Backlog(3, 300, 40, in_aggregate=50, has_hash_keys=True)

    def hash_keys(of: Backlog, shard: int) -> list[str | None]:
        records = [
            Record(data=each, partition_key="k", sequence_number="1") for each in of.of_shard(shard)
        ]
        found: list[str | None] = deaggregate(records).explicit_hash_key.to_pylist()
        return found

    for shard in range(3):
        found = hash_keys(backlog, shard)
        assert len(found) == 100
        assert len(set(found)) == 50
        assert {int(each or -1) * 3 >> 128 for each in found} == {shard}
    assert set(hash_keys(replace(backlog, has_hash_keys=False), 0)) == {None}


def test_rounds_go_through_the_competitors_from_either_end() -> None:
    stock = STOCKS[0]
    names = ("sparkinesis", "kclpy-ext", "boto3")
    runs = [Run(BY_NAME[name], stock, reading) for reading in stock.readings for name in names]

    def turn(number: int) -> list[str]:
        return [run.competitor.name for run in in_turn(runs, number)]

    assert turn(0) == [*names, *names]
    assert turn(1) == [*names[::-1], *names[::-1]]
    assert turn(2) == ["sparkinesis", "boto3", "sparkinesis", "boto3"]
    cases = [run.reading.case for run in in_turn(runs, 1)]
    assert cases == [stock.readings[0].case] * 3 + [stock.readings[1].case] * 3


def sample(competitor: str, value: float, case: str = "backlog", lost: int = 0) -> Sample:
    return Sample(case, "CPU", "s", competitor, value, lost)


def test_a_ratio_compares_the_medians_of_all_rounds() -> None:
    values = [("sparkinesis", 2.0), ("peer", 9.0), ("sparkinesis", 1.0), ("peer", 3.0)]
    values += [("sparkinesis", 7.0), ("peer", 5.0)]
    ours, theirs = figures([sample(*each) for each in values])
    assert (ours.median, ours.spread, ours.ratio) == (2.0, (1.0, 7.0), None)
    assert (theirs.median, theirs.spread, theirs.ratio) == (5.0, (3.0, 9.0), 2.5)
    assert theirs.values == (9.0, 3.0, 5.0)


@pytest.mark.parametrize("loser", ["sparkinesis", "peer"])
def test_a_run_that_lost_records_is_compared_with_nothing(loser: str) -> None:
    both = [sample(each, 1.0, lost=3 * (each == loser)) for each in ("sparkinesis", "peer")]
    found = {each.competitor: each for each in figures([*both, *map(sample, ["peer"], [1.0])])}
    assert found["peer"].ratio is None
    assert found[loser].lost == 3


def test_a_case_that_only_we_have_is_compared_with_the_others_values_of_another() -> None:
    given = [sample("sparkinesis", 4.0), sample("peer", 6.0), sample("sparkinesis before", 9.0)]
    given += [sample("sparkinesis", 2.0, "arrow"), sample("sparkinesis before", 8.0, "arrow")]
    found = figures(given, {"arrow": "backlog"})
    assert [(each.case, each.competitor, each.ratio) for each in found] == [
        ("backlog", "sparkinesis", None),
        ("backlog", "peer", 1.5),
        ("backlog", "sparkinesis before", 2.25),
        ("arrow", "sparkinesis", None),
        ("arrow", "sparkinesis before", 4.0),
        ("arrow", "peer", 3.0),
    ]


def test_a_round_knows_what_the_records_cost_without_the_start() -> None:
    costs = {
        ("start, table exists, polling", "peer"): Cost(0.5, 2.0, 60.0, 0, 0),
        ("start, table exists, fan-out", "peer"): Cost(0.75, 3.0, 70.0, 0, 0),
        ("100,000 x 1 KB, fan-out", "peer"): Cost(2.0, 5.0, 90.0, 7, 1),
    }
    found = {(each.case, each.measure): each for each in samples(costs)}
    cpu = found["100,000 x 1 KB, fan-out", "CPU less the start's"]
    assert (cpu.value, cpu.lost, cpu.repeated) == (1.25, 7, 1)
    assert found["100,000 x 1 KB, fan-out", "time less the start's"].value == 2.0
    assert ("start, table exists, polling", "CPU less the start's") not in found


def test_the_table_says_who_lost_records_and_who_is_missing() -> None:
    report = Report("python -m benchmarks.peers", "2 cores", 1)
    report.left_out.append("other is left out: it needs Java.")
    report.figures = figures([sample("sparkinesis", 1.0), sample("peer", 12.5, lost=1_500)])
    console = Console(width=110)
    with console.capture() as shown:
        print_report(report, console)
    (row,) = [line for line in shown.get().splitlines() if "peer" in line]
    assert [cell.strip() for cell in row.split("│")[2:7]] == [
        "peer",
        "12.5 s",
        "12.5 - 12.5",
        "",
        "lost 1,500",
    ]
    assert "other is left out: it needs Java." in shown.get()


SVG = "{http://www.w3.org/2000/svg}"


def bars_of(drawing: str) -> list[ET.Element]:
    (_background, *bars) = ET.fromstring(drawing).iter(f"{SVG}rect")
    return bars


def test_bars_are_as_long_as_their_medians_within_a_group() -> None:
    groups = [
        Group("a", (Bar("x", 2.0, 1.0, 4.0, "2 s", True), Bar("y", 4.0, 4.0, 4.0, "4 s", False))),
        Group("b", (Bar("z", 400.0, 400.0, 400.0, "400 s", False),)),
    ]
    drawing = svg("title", "subtitle", groups)
    widths = [float(bar.attrib["width"]) for bar in bars_of(drawing)]
    assert widths[1] == widths[2] == 2 * widths[0]
    assert [bar.attrib["fill"] == OURS for bar in bars_of(drawing)] == [True, False, False]
    spread = next(iter(ET.fromstring(drawing).iter(f"{SVG}line"))).attrib
    assert float(spread["x2"]) - float(spread["x1"]) == 1.5 * widths[0]


def a_report() -> Report:
    samples = [
        Sample("backlog", "CPU less the start's", "s", "sparkinesis", 1.0),
        Sample("backlog", "CPU less the start's", "s", "peer", 1.5),
        Sample("backlog", "CPU less the start's", "s", "loser", 0.5, lost=3),
        Sample("start", "CPU", "s", "sparkinesis", 1.0),
        Sample("idle", "CPU a minute", "s", "peer", 1.0),
        Sample("idle", "memory", "MiB", "peer", 100.0),
    ]
    return Report("command", "machine", 1, figures=figures(samples))


def test_a_plot_shows_its_measures_without_those_who_lost_records() -> None:
    plots = drawn(a_report())
    assert sorted(plots) == ["peers-cpu.svg", "peers-idle.svg"]
    texts = [each.text for each in ET.fromstring(plots["peers-cpu.svg"]).iter(f"{SVG}text")]
    assert texts[2:] == ["backlog", "sparkinesis", "1.00 s", "peer", "1.50 s (1.50)"]
    titles = [each.text for each in ET.fromstring(plots["peers-idle.svg"]).iter(f"{SVG}text")]
    assert {"idle: CPU a minute", "idle: memory"} <= set(titles)


SAMPLES = [
    Sample("backlog", "CPU", "s", "sparkinesis", 1.0),
    Sample("backlog", "time", "s", "sparkinesis", 4.0),
    Sample("backlog", "CPU", "s", "peer", 1.5),
    Sample("backlog", "CPU", "s", "peer", 2.5),
    Sample("backlog", "CPU", "s", "loser", 1.5, lost=2),
]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "peers.md"
    path.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    return path


def test_the_figures_of_a_page_are_replaced(page: Path) -> None:
    report = Report("python -m benchmarks.peers", "2 cores", 2, figures=figures(SAMPLES))
    report.left_out.append("other is left out: it needs Java.")
    write(report, page)
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n2 cores; rounds: 2.")
    assert text.endswith(f"other is left out: it needs Java.\n\n{END}\n\nThe end.\n")
    assert "old" not in text
    assert [line for line in text.splitlines() if line.startswith("|")] == [
        "| backlog | CPU | time |",
        "|---|---|---|",
        "| sparkinesis | 1.00 s | 4.00 s |",
        "| peer | 2.00 s (1.50 - 2.50), **2.00** |  |",
        "| loser | 1.50 s, lost 2 |  |",
    ]
    write(report, page)
    assert page.read_text() == text


def test_a_page_shows_the_plots_beside_it(page: Path) -> None:
    (page.parent / "peers-memory.svg").write_text("<svg/>")
    write(Report("command", "machine", 1, figures=figures(SAMPLES)), page)
    shown = [line for line in page.read_text().splitlines() if line.startswith("![")]
    assert shown == ["![Peak memory with a backlog](peers-memory.svg)"]


def test_runs_of_different_cases_are_one_report() -> None:
    one = Report("one", "machine", 1, {"a": {"a": "1"}}, ["no Java"], figures(SAMPLES[:1]))
    other = Report("other", "machine", 1, {"b": {"b": "2"}}, ["no Java"], figures(SAMPLES[1:2]))
    both = joined([one, other])
    assert both.command == "one\nother"
    assert both.versions == {"a": {"a": "1"}, "b": {"b": "2"}}
    assert both.left_out == ["no Java"]
    assert both.figures == one.figures + other.figures
    with pytest.raises(ValueError, match="different rounds"):
        joined([one, Report("other", "machine", 2)])


PYTHON = Path(sys.executable)
QUIET = print


@pytest.mark.long
def test_memory_by_fan_out_is_that_before_and_with_a_backlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(costs, "SHARDS", 2)
    monkeypatch.setattr(costs, "WORK", Backlog(2, 20_000, 1000))
    monkeypatch.setattr(steady, "SETTLE", 0.2)
    (boto3,) = [each for each in PEERS if each.name == "boto3"]
    pythons = {SPARKINESIS: PYTHON, boto3: PYTHON}  # which has no fan-out
    found = list(costs._fan_out(pythons, 1, 0.1, QUIET))
    assert {each.competitor for each in found} == {SPARKINESIS.name}
    cpu, idle, at_work = found
    assert (cpu.measure, idle.measure) == ("CPU until all are read", "memory, idle")
    assert (at_work.measure, at_work.lost) == ("memory, at work", 0)
    assert 0.1 < cpu.value < 60
    assert 20 < idle.value < at_work.value < 1000


@pytest.mark.long
def test_plans_are_those_of_the_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "PLANNED_SHARDS", 3)
    monkeypatch.setattr(costs, "PLANS", 2)
    found = list(costs._plans({SPARKINESIS: PYTHON, PEERS[0]: PYTHON}, 1, QUIET))
    assert [(each.competitor, each.measure) for each in found] == [
        (SPARKINESIS.name, "CPU of the first plan"),
        (SPARKINESIS.name, "CPU of a plan"),
    ]
    assert found[0].value > found[1].value > 0


def test_a_folder_is_a_revision(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert before(str(other)).name == "sparkinesis other"
    assert checked_out(before(str(other))) == other


def test_a_revision_is_checked_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert checked_out(SPARKINESIS) == ROOT
    git = ["git", "-C", str(ROOT), "show", "HEAD:pyproject.toml"]
    there = subprocess.run(git, capture_output=True, text=True, check=False)
    if there.returncode:
        pytest.skip("this is no checkout of git")
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    source = checked_out(before("HEAD"))
    assert source.is_relative_to(tmp_path)
    assert (source / "pyproject.toml").read_text() == there.stdout
    (source / "pyproject.toml").write_text("kept")
    assert checked_out(before("HEAD")) == source
    assert (source / "pyproject.toml").read_text() == "kept", "it is not checked out again"
    with pytest.raises(environments.LeftOutError, match="no-such-revision"):
        checked_out(before("no-such-revision"))


PATIENCE = 120.0
RECORDS = 2_000


def put(server: LocalServer, stream: str, backlog: Backlog) -> None:
    server.client("kinesis").create_stream(StreamName=stream, ShardCount=backlog.shards)
    backlog.put(server.endpoint_url, stream)


@pytest.mark.parametrize("secured", [False, True])
def test_each_record_of_a_backlog_is_counted(secured: bool) -> None:
    """By polling, as Arrow columns; and over TLS by fan-out, as objects."""
    with (
        tls.over_tls() if secured else nullcontext(),
        counting_server(limits=False) as (server, _),
    ):
        assert server.endpoint_url.startswith("https://" if secured else "http://")
        put(server, "packed", Backlog(2, RECORDS, 100, in_aggregate=50))
        task = {"endpoint": server.endpoint_url, "stream": "packed", "application": "packed"}
        how = {"worker": "w", "arrow": not secured, "fan_out": secured}
        with consumer(PYTHON, SPARKINESIS.consumer, **task, **how) as running:
            assert running.wait_for(RECORDS, PATIENCE, PATIENCE), running.log()
            found = cost(running, RECORDS)
            assert sorted(running.numbers()) == list(range(RECORDS))
            assert sum(batch.size for batch in running.batches) == RECORDS * 100
            missing = cost(running, RECORDS + 5)
        is_fan_out = any(call.operation == "SubscribeToShard" for call in server.kinesis.calls)
    assert is_fan_out == secured
    assert (found.lost, found.repeated, missing.lost) == (0, 0, 5)
    assert 0.1 < found.cpu < PATIENCE
    assert found.memory > 20


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(limits=False, dynamodb=True) as running:
        yield running


def test_an_application_begins_anew_when_its_leases_are_put_back(server: LocalServer) -> None:
    client = server.client("kinesis")
    client.create_stream(StreamName="again", ShardCount=2)
    task = {"endpoint": server.endpoint_url, "stream": "again", "application": "again"}
    table = dynamodb(server.endpoint_url)
    python = Path(sys.executable)
    with consumer(python, SPARKINESIS.consumer, worker="w", **task) as running:
        assert wait_for_leases(table, "again", 2, PATIENCE), running.log()
    leases = taken(table, "again")
    assert [len(rows) for rows in leases.rows.values()] == [2]
    Backlog(2, RECORDS, 100).put(server.endpoint_url, "again")
    for _ in range(2):
        leases.restore()
        assert not any("leaseOwner" in row for row in rows_of(table, "again"))
        with consumer(python, SPARKINESIS.consumer, worker="w", **task) as running:
            assert running.wait_for(RECORDS, PATIENCE, PATIENCE), running.log()
            assert cost(running, RECORDS).repeated == 0
