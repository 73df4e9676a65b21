"""The service's clock: to the millisecond where the local clock agrees, else never too late."""

from __future__ import annotations

import calendar
from datetime import timezone
from email.utils import parsedate_to_datetime

import pytest

from sparkinesis.stream.timing import second_of, service_time

SECOND = 1_790_000_000_000
HEADERS = {"date": "Mon, 21 Sep 2026 14:13:20 GMT"}


@pytest.mark.parametrize(
    ("sent_ms", "local_ms", "expected"),
    [
        (SECOND + 100, SECOND + 300, SECOND + 300),
        (SECOND - 20, SECOND + 300, SECOND + 300),
        (SECOND + 990, SECOND + 1010, SECOND + 990),
        (SECOND - 20, SECOND + 1010, SECOND),
        (SECOND + 60_000, SECOND + 60_010, SECOND),
        (SECOND - 60_000, SECOND - 59_990, SECOND),
        (None, SECOND + 300, SECOND + 300),
        (None, SECOND + 1010, SECOND),
    ],
    ids=[
        "one second",
        "a second begins before the answer",
        "a second ends before the answer is here",
        "a call of more than a second",
        "a clock that is fast",
        "a clock that is slow",
        "only the answer's time is known",
        "and that is of another second",
    ],
)
def test_the_local_clock_supplies_the_milliseconds_if_it_agrees(
    sent_ms: int | None, local_ms: int, expected: int
) -> None:
    assert service_time(HEADERS, local_ms, sent_ms) == expected


@pytest.mark.parametrize("headers", [{}, {"date": "yesterday"}])
def test_without_a_date_it_is_the_local_clock(headers: dict[str, str]) -> None:
    assert service_time(headers, SECOND + 5, SECOND + 1) == SECOND + 5


DATES = [
    *(f"Mon, 21 {month} 2026 14:13:20 GMT" for month in calendar.month_abbr[1:]),
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "Thu, 29 Feb 2024 23:59:59 GMT",
    "Mon, 21 Sep 2026 14:13:20 +0200",
    "Mon, 21 Sep 2026 14:13:20 -0000",
    "21 Sep 2026 14:13:20 GMT",
    "Monday, 21-Sep-26 14:13:20 GMT",
    "Mon Sep 21 14:13:20 2026",
]
IMPOSSIBLE = ["Fri, 30 Feb 2024 00:00:00 GMT", "Mon, 21 Sep 2026 24:00:00 GMT", "now", "", None]


@pytest.mark.parametrize("date", DATES)
def test_each_date_is_read_as_by_the_standard_library(date: str) -> None:
    parsed = parsedate_to_datetime(date)
    expected = parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)
    assert second_of(date) == expected.timestamp()


@pytest.mark.parametrize("date", IMPOSSIBLE)
def test_an_impossible_date_is_none(date: str | None) -> None:
    assert second_of(date) is None
