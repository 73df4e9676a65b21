"""What a run with Prometheus finds fault with, and what it lets pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.prometheus.course import SLOW_FROM, course
from tests.prometheus.journal import Journal, Totals, Writer
from tests.prometheus.verdict import Fate, wrong_counts, wrong_lag

COUNTED = Totals(records=100, bytes=1000, calls=10, failed=2)


def test_counts_of_a_graceful_end_must_be_the_same() -> None:
    assert wrong_counts([Fate("a", COUNTED, COUNTED)]) == []
    for name in ("records", "bytes", "calls", "failed"):
        for told in (getattr(COUNTED, name) - 1, getattr(COUNTED, name) + 1):
            (found,) = wrong_counts([Fate("a", COUNTED, replace(COUNTED, **{name: told}))])
            assert f"{name}, Prometheus {told:g}" in found


def test_counts_of_a_killed_worker_lie_between_the_scrape_and_what_it_processed() -> None:
    scraped = Totals(80, 800, 8, 1)
    for told in (scraped, COUNTED, Totals(90, 900, 9, 1)):
        assert wrong_counts([Fate("a", COUNTED, told, scraped)]) == []
    for told in (replace(COUNTED, records=79), replace(COUNTED, records=101)):
        (found,) = wrong_counts([Fate("a", COUNTED, told, scraped)])
        assert found.startswith("a, which was killed, counted 100 records")


@pytest.mark.parametrize(
    ("told", "behind", "words"),
    [
        ([[0.0, 4.0, 0.0], [0.0, 3.0]], 4.5, ""),
        ([[0.0, 5.4]], 4.5, ""),
        ([[0.0, 5.6]], 4.5, "no batch was 4.5 s behind"),
        ([[0.0, 2.0]], 4.5, "lags up to 2.0 s"),
        ([], 4.5, "lags up to 0.0 s"),
        ([[1.9]], 1.9, "no batch was 2 s behind"),
    ],
)
def test_the_lag_must_follow_the_batches(
    told: list[list[float]], behind: float, words: str
) -> None:
    found = wrong_lag(told, behind, least=2.0)
    assert [words in text for text in found] == ([True] if words else []), found


@pytest.mark.parametrize("seconds", [30.0, 300.0, 3600.0])
def test_everything_happens_before_the_slow_time(seconds: float) -> None:
    acts = course(seconds)
    assert [name for _, name in acts[:5]] == ["split", "kill", "merge", "kill_in_fleet", "end"]
    assert acts[-1] == (seconds * SLOW_FROM, "slow")
    names = [name for _, name in acts]
    assert names.count("kill") == names.count("end") == names.count("slow") == 1
    assert abs(names.count("split") - names.count("merge")) <= 1
    moments = [moment for moment, _ in acts]
    assert moments == sorted(moments)
    assert moments[0] > 0


def test_a_journal_tells_what_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w.jsonl")
    assert journal.read().totals == Totals()
    writer = Writer(journal.path)
    writer.write({"numbers": [1, 2], "bytes": 7, "behind": 0.5})
    writer.write({"failed": 40})
    writer.write({"numbers": [2], "bytes": 3, "behind": 0.1})
    assert journal.read().totals == Totals(records=3, bytes=10, calls=2, failed=1)
    writer.write({"pid": 5})
    assert journal.read().pids == {5}
    assert (journal.numbers, journal.furthest_behind, journal.ended) == ({1, 2}, 0.5, None)
    writer.write({"ended": 1.5})
    assert journal.read().ended == 1.5
