from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.peers.backlog import Cost, samples
from benchmarks.peers.figures import Sample, figures
from benchmarks.peers.report import Report, print_report


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
