"""What the check concludes from what it saw; and its questions. Values only."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from sparkinesis.stream.page import Record
from tests.aws.findings import Answer, Finding, Question, Verdict, findings, judge
from tests.aws.probes import (
    arrival_order,
    at_timestamp,
    encodings,
    lease_table,
    positions,
    reshard,
    tip,
)
from tests.aws.report import Report, markdown, summary
from tests.aws.resources import Resource
from tests.aws.run import QUESTIONS
from tests.aws.spending import Use
from tests.documents import ROOT

START = 1_800_000_000_000
ARRIVALS = [START + by for by in (100, 230, 360, 490, 1_100, 1_230)]


def values(answers: dict[str, Answer]) -> dict[str, object]:
    return {key.partition(".")[2]: answer.value for key, answer in answers.items()}


def test_each_question_names_files_that_exist_and_has_a_key_of_its_own() -> None:
    keys = [question.key for question in QUESTIONS]
    assert len(set(keys)) == len(keys) > 30
    for question in QUESTIONS:
        assert question.modules
        for module in question.modules:
            assert (ROOT / module).is_file(), module


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(None, Verdict.NOT_MEASURED), (True, Verdict.AS_ASSUMED), (False, Verdict.OTHERWISE)],
)
def test_an_answer_is_judged_by_the_right_ones(value: bool | None, verdict: Verdict) -> None:
    question = Question("k", "?", "yes", (), frozenset({True}))
    assert judge(question, Answer(value)) is verdict


@pytest.mark.parametrize(("value", "is_right"), [(-1, False), (0, True), (7, True), (8, False)])
def test_a_figure_is_judged_by_its_bounds(value: int, is_right: bool) -> None:
    question = Question("k", "?", "0 to 7", (), least=0, most=7)
    assert (judge(question, Answer(value)) is Verdict.AS_ASSUMED) == is_right


def test_a_question_without_an_answer_was_not_measured() -> None:
    (finding,) = findings([QUESTIONS[0]], {})
    assert finding.verdict is Verdict.NOT_MEASURED


def looks(step_ms: int, *, inclusive: bool = True) -> list[at_timestamp.Look]:
    """Reads of a service that begins at multiples of ``step_ms``, before, at and after records."""
    found = []
    for at in sorted({arrived + by for arrived in ARRIVALS[1:-1] for by in (-1, 0, 1)}):
        since = at // step_ms * step_ms
        first = next(
            (
                n
                for n, arrived in enumerate(ARRIVALS)
                if arrived > since or (inclusive and arrived == since)
            ),
            None,
        )
        found.append(at_timestamp.Look(at, first))
    return found


def at(looks: list[at_timestamp.Look], **changes: object) -> dict[str, object]:
    seen = at_timestamp.Observed(ARRIVALS, looks, 0, at_timestamp.REFUSED)
    return values(at_timestamp.answers(replace(seen, **changes)))  # type: ignore[arg-type]


def test_an_instant_to_the_second_and_an_exclusive_one_are_told_apart() -> None:
    assert at(looks(1000))["precision"] == at_timestamp.SECOND
    exclusive = at(looks(1, inclusive=False))
    assert (exclusive["precision"], exclusive["inclusive"]) == ("neither", False)
    assert exclusive["between"] is True


def test_arrivals_in_whole_seconds_prove_no_precision() -> None:
    seconds = [START, START + 1000, START + 2000]
    seen = at([at_timestamp.Look(second, n) for n, second in enumerate(seconds)], arrivals=seconds)
    assert (seen["precision"], seen["arrival_times"]) == (None, at_timestamp.SECOND)


def test_the_disorder_is_the_furthest_that_a_record_lies_behind_an_earlier_one() -> None:
    assert arrival_order.disorder_ms([5, 9, 3, 8, 10]) == 6
    assert arrival_order.disorder_ms([1, 2, 2, 3]) == 0
    assert arrival_order.disorder_ms([]) == 0


def test_the_order_of_arrivals() -> None:
    seen = arrival_order.Observed(
        [10, 5], [1, 2], [(100, 103), (104, 100)], [(1000, 1700), (2000, 1990)]
    )
    assert values(arrival_order.answers(seen)) == {
        "in_shard_ms": 5,
        "between_shards_ms": 4,
        "off_clock_ms": 700,
        "sequence": True,
    }
    assert values(arrival_order.answers(replace(seen, numbers=[2, 2])))["sequence"] is False


def page(asked: int, behind: int | None, *arrivals: int, goes_on: bool = True) -> tip.Seen:
    return tip.Seen(asked, behind, arrivals, goes_on)


def test_a_record_that_a_page_at_the_tip_missed_is_late() -> None:
    pages = [page(100, 0, 90), page(200, 0), page(300, 0, 170, 250), page(400, 0)]
    assert tip.lateness_ms(pages, at_tip=True) == 30
    assert tip.lateness_ms(pages, at_tip=False) is None
    assert tip.lateness_ms([page(100, 0, 90), page(200, 0, 150)], at_tip=True) == 0


def test_pages_behind_the_tip_are_judged_apart() -> None:
    pages = [page(1000, 300, 600), page(1200, 0, 700, 1100)]
    assert tip.lateness_ms(pages, at_tip=False) == 300
    assert tip.lateness_ms(pages, at_tip=True) == 0


def test_the_pages_of_a_tip_that_answer_otherwise() -> None:
    other = tip.Observed(
        [],
        [],
        [page(200, 7), page(300, 0, goes_on=False)],
        [page(400, 0), page(500, 0, 90)],
    )
    bad = values(tip.answers(other))
    assert (bad["empty_is_at_tip"], bad["goes_on"]) == (False, False)
    assert (bad["behind_says_so"], bad["empty_pages_say_behind"]) == (False, False)
    assert (bad["delay_ms"], bad["late_ms"]) == (None, None)
    none = values(tip.answers(replace(other, from_oldest=[page(1, 0, 1)])))
    assert none["empty_pages_say_behind"] == "no empty page"


CHILDREN = frozenset({("c1", ("p",), (0, 4)), ("c2", ("p",), (5, 9))})
MERGED = {"m": ("c1", "c2")}


def resharded(**changes: object) -> dict[str, object]:
    seen = reshard.Observed(
        end=reshard.End([3, 2], [{}, {"c1": ("p",), "c2": ("p",)}], True, 100),
        again=reshard.End([0], [{"c1": ("p",), "c2": ("p",)}], True, None),
        split_children=CHILDREN,
        listed_children=CHILDREN,
        was_end_listed=True,
        listed_ms=10,
        active_ms=20,
        first_child_arrival_ms=130,
        merged=[MERGED, MERGED],
        merge_parents=("c1", "c2"),
    )
    return values(reshard.answers(replace(seen, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"end": reshard.End([3, 0], [{}, {"c1": ()}], True, 9)}, "last_page", reshard.EMPTY),
        ({"end": reshard.End([3, 0], [{}, {}], True, 9)}, "child_shards", reshard.NEVER),
        (
            {"end": reshard.End([3, 0], [{"c": ()}, {"c": ()}], True, 9)},
            "child_shards",
            reshard.EARLIER,
        ),
        ({"end": reshard.End([3, 0], [{}, {}], False, 9)}, "last_page", "no end"),
        ({"end": reshard.End([3], [{}], True, 140)}, "child_after_parent_ms", -10),
        ({"split_children": frozenset()}, "children_complete", False),
        ({"listed_children": frozenset()}, "children_complete", False),
        ({"merged": [MERGED, {}]}, "merged_child", False),
        ({"merged": [MERGED, {"m": ("c1",)}]}, "merged_child", False),
        ({"again": reshard.End([0], [{}], True, None)}, "ends_again", False),
        ({"again": reshard.End([0], [{}], False, None)}, "ends_again", False),
        ({"first_child_arrival_ms": None}, "child_after_parent_ms", None),
    ],
)
def test_a_reshard_that_answers_otherwise(
    changes: dict[str, object], key: str, value: object
) -> None:
    assert resharded(**changes)[key] == value


def placed(**changes: object) -> dict[str, object]:
    seen = positions.Observed(
        stored=["11", "12", "13"],
        at_second="12",
        after_second="13",
        older=positions.UNKNOWN,
        of_deleted="21",
        recreated=["21", "22"],
        created_off_ms=-40,
    )
    return values(positions.answers(replace(seen, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"at_second": "13"}, "at", positions.NEXT),
        ({"after_second": None}, "after", positions.NOTHING),
        ({"after_second": "99"}, "after", "another record"),
        ({"older": "12"}, "older", "another record"),
        ({"older": positions.NOTHING}, "older", positions.NOTHING),
        ({"of_deleted": "22"}, "of_deleted", "another record"),
    ],
)
def test_positions_that_answer_otherwise(
    changes: dict[str, object], key: str, value: object
) -> None:
    assert placed(**changes)[key] == value


def tabled(**changes: object) -> dict[str, object]:
    seen = lease_table.Observed(
        good=lease_table.WRITTEN,
        good_is_stored=True,
        stale=lease_table.REFUSED_WITH_ROW,
        beside_stale_is_stored=True,
        missing_row_is_absent=True,
        handed_off=lease_table.REFUSED,
        of_25=25,
        winners=[1, 1],
        update=lease_table.REFUSED_WITH_ROW,
    )
    return values(lease_table.answers(replace(seen, **changes)))  # type: ignore[arg-type]


def test_a_lease_table() -> None:
    good = tabled()
    assert good["batch_writes"] == lease_table.WRITTEN
    assert (good["batch_is_missing"], good["one_wins"]) == (True, 1)
    assert tabled(good_is_stored=False)["batch_writes"] == "answered, but not stored"
    assert tabled(handed_off=lease_table.WRITTEN)["batch_is_missing"] is False
    assert tabled(winners=[1, 2, 1])["one_wins"] == "1 or 2"
    assert tabled(winners=[2, 2])["one_wins"] == 2


def encoded(kind: str = "CBOR", size: int = 75, data: bytes = b"a") -> dict[str, object]:
    records = [Record(data=one, sequence_number="5") for one in (b"a", data)]
    in_json = encodings.Seen("JSON", 100, records[:1])
    in_cbor = encodings.Seen(kind, size, records[1:])
    return values(encodings.answers(encodings.Observed([(in_json, in_cbor)])))


def test_encodings() -> None:
    assert encoded() == {"cbor": "CBOR", "same": True, "bytes": 75}
    assert encoded(data=b"b")["same"] is False
    assert encoded(size=90)["bytes"] == 90
    assert encoded("JSON") == {"cbor": "JSON", "same": None, "bytes": None}
    assert encodings.answers(encodings.Observed([])) == {}


def report(*answers: Answer, **changes: object) -> Report:
    question = Question("a.b", "What?", "yes", ("src/x.py",), frozenset({"yes", "no"}))
    strict = Question("a.c", "Which?", "this", ("src/y.py",), frozenset({"this"}))
    found = [Finding(one, answer) for one, answer in zip((question, strict), answers, strict=False)]
    made = Report("X", datetime(2026, 1, 1, tzinfo=timezone.utc), 9.0, found, Use(1), 0.1, {})
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_report_says_what_is_otherwise_and_where_to_look() -> None:
    whole = report(Answer("yes", "twice"), Answer("that"))
    assert not whole.is_good
    text = markdown(whole)
    assert "## Not as assumed" in text
    assert "`a.c`: the answer is: that. Assumed: this. On this rest: `src/y.py`." in text
    assert "- `a.b`: twice" in text
    assert summary(whole) == "1 as assumed, 1 NOT as assumed, 0 not measured"
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1, "the table is aligned"


def test_what_was_not_measured_is_no_failure_and_what_is_left_behind_is_one() -> None:
    assert report(Answer("yes"), Answer(None, "out of time")).is_good
    left = report(Answer("yes"), not_removed={Resource("stream", "s"): "denied"})
    assert not left.is_good
    assert "NOT REMOVED" in markdown(left)
    assert "stream s: denied" in markdown(left)
