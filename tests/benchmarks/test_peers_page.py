from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.figures import Sample, figures
from benchmarks.peers.page import BEGIN, END, write
from benchmarks.peers.report import Report, joined

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
