"""What a run with Prometheus finds fault with, and what it lets pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.prometheus.journal import Totals
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
