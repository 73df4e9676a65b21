"""How answers are judged and shown, and what the probes conclude from what they saw."""

from __future__ import annotations

from collections.abc import Container

import pytest

from sparkinesis.stream.page import ChildShard, HashKeyRange, Page
from tests.aws.answer import AS_ASSUMED, NOT_MEASURED, OTHERWISE, Answer, Value, all_of, markdown
from tests.aws.probes import arrival_order, at_timestamp, reshard, tip

START = 1_800_000_000_000
ARRIVALS = [START + by for by in (100, 230, 360, 490, 1_100, 1_230)]


@pytest.mark.parametrize(
    ("value", "right", "verdict"),
    [
        (None, {True}, NOT_MEASURED),
        (True, {True}, AS_ASSUMED),
        (False, {True}, OTHERWISE),
        (-1, range(8), OTHERWISE),
        (7, range(8), AS_ASSUMED),
        (8, range(8), OTHERWISE),
        (8, None, AS_ASSUMED),
    ],
)
def test_an_answer_is_judged_by_the_right_ones(
    value: Value | None, right: Container[Value] | None, verdict: str
) -> None:
    assert Answer("k", "?", value, right, "yes", ()).verdict == verdict


def test_the_report_says_what_is_otherwise_and_where_to_look() -> None:
    answers = [
        Answer("a.b", "What?", "yes", {"yes"}, "yes", ("src/x.py",), "twice"),
        Answer("a.c", "Which?", 1_200, range(9), "less", ("src/y.py", "src/z.py"), unit="ms"),
        Answer("a.d", "Why?", None, None, "any", ("src/x.py",), "out of time"),
    ]
    text = markdown(answers)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert len({len(row) for row in rows}) == 1, "the table is aligned"
    assert (
        "- NOT as assumed: `a.c`: 1,200 ms. Assumed: less. On this rest: `src/y.py`, `src/z.py`."
    ) in text
    assert "- not measured: `a.d`: - (out of time)." in text
    assert "- `a.b`: twice" in text


def test_all_of_several() -> None:
    assert all_of([True, True], "pages") == (True, "2 of 2 pages")
    assert all_of([True, False], "pages") == (False, "1 of 2 pages")
    assert all_of([], "pages") == (None, "no pages were seen")


def reads(step_ms: int, *, is_inclusive: bool = True) -> dict[int, int | None]:
    """Reads of a service that begins at multiples of ``step_ms``: before, at and after records."""
    found = {}
    for at in sorted({arrived + by for arrived in ARRIVALS[1:-1] for by in (-1, 0, 1)}):
        since = at // step_ms * step_ms + (not is_inclusive)
        found[at] = at_timestamp.expected(ARRIVALS, since)
    return found


def test_an_instant_to_the_second_and_an_exclusive_one_are_told_apart() -> None:
    assert at_timestamp.precision(ARRIVALS, reads(1)) == at_timestamp.MS
    assert at_timestamp.precision(ARRIVALS, reads(1000)) == at_timestamp.SECOND
    assert at_timestamp.precision(ARRIVALS, reads(1, is_inclusive=False)) == "neither"
    seconds = [START, START + 1000, START + 2000]
    proves_nothing = {second: n for n, second in enumerate(seconds)}
    assert at_timestamp.precision(seconds, proves_nothing) is None


def test_the_disorder_is_the_furthest_that_a_record_lies_behind_an_earlier_one() -> None:
    assert arrival_order.disorder_ms([5, 9, 3, 8, 10]) == 6
    assert arrival_order.disorder_ms([1, 2, 2, 3]) == 0
    assert arrival_order.disorder_ms([]) == 0


def page(asked: int, behind: int | None, *arrivals: int) -> tip.Seen:
    return tip.Seen(asked, behind, arrivals)


def test_a_record_that_a_page_at_the_tip_missed_is_late() -> None:
    pages = [page(100, 0, 90), page(200, 0), page(300, 0, 170, 250), page(400, 0)]
    assert tip.lateness_ms(pages, at_tip=True) == 30
    assert tip.lateness_ms(pages, at_tip=False) is None
    assert tip.lateness_ms([page(100, 0, 90), page(200, 0, 150)], at_tip=True) == 0
    behind = [page(1000, 300, 600), page(1200, 0, 700, 1100)]
    assert tip.lateness_ms(behind, at_tip=False) == 300
    assert tip.lateness_ms(behind, at_tip=True) == 0


@pytest.mark.parametrize(
    ("named", "where"),
    [
        ([False, True], reshard.LAST_ONLY),
        ([True], reshard.LAST_ONLY),
        ([True, True], reshard.EARLIER),
        ([False, False], reshard.NEVER),
    ],
)
def test_the_page_on_which_children_are(named: list[bool], where: str) -> None:
    child = ChildShard("c", ["p"], HashKeyRange("0", "1"))
    pages = [Page([], None, 0, [child] if is_named else None) for is_named in named]
    assert reshard.where_children_are(pages) == where
