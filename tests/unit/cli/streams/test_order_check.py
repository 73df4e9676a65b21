"""What breaks the order of a key, by the values of a field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pytest

from sparkinesis.cli.streams import order_check
from sparkinesis.cli.streams.order_check import OrderCheck, comparable
from sparkinesis.worker.batches.user_record import UserRecord, make_user_record


def record(data: object, key: str | None = "k", shard: str = "s", at: int = 0) -> UserRecord:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return make_user_record(raw, key, str(at), 0, None, None, shard)


def read(
    check: OrderCheck,
    values: Sequence[object],
    shard: str = "s",
    parents: Sequence[str] = (),
    key: str | None = "k",
) -> list[tuple[str, Any, Any]]:
    """The kinds of what is wrong, with the record's value and the other one's."""
    records = [record({"n": value}, key, shard) for value in values]
    return [
        (one.kind.value, one.record.value, one.other.value)
        for one in check.breaks(records, parents)
    ]


def counts(check: OrderCheck) -> dict[str, int]:
    """The numbers of the summary that are not 0."""
    found = check.summary.as_object("s")
    return {name: value for name, value in found.items() if isinstance(value, int) and value}


def test_a_value_less_than_one_before_is_behind_the_greatest() -> None:
    check = OrderCheck("n")
    assert read(check, [1, 5, 3, 4, 6]) == [("behind", 3, 5), ("behind", 4, 5)]
    assert counts(check) == {"records": 5, "behind": 2}
    assert not check.summary.is_well


def test_keys_have_an_order_of_their_own() -> None:
    check = OrderCheck("n")
    assert read(check, [5], key="a") + read(check, [3], key="b") + read(check, [4], key=None) == []
    assert check.summary.is_well


def test_a_skipped_number_is_missing_until_it_comes() -> None:
    check = OrderCheck("n", gaps=True)
    assert read(check, [7, 8, 12]) == [("gap", 12, 8)]
    assert check.summary.missing == 3
    assert read(check, [10]) == [("behind", 10, 12)]
    assert check.summary.missing == 2
    assert read(check, [6]) == [("behind", 6, 12)]
    assert check.summary.missing == 2, "6 is before the first one, and was not counted"
    assert read(check, [13]) == []


def test_numbers_may_be_skipped_by_a_field_that_is_no_counter() -> None:
    check = OrderCheck("n")
    assert read(check, [1, 100]) == []
    assert "gap" not in check.summary.text("n")


def test_a_counter_repeats_by_its_value_and_others_by_the_whole_data() -> None:
    first, again = {"n": 1, "try": 1}, {"n": 1, "try": 2}
    for gaps, repeats in ((True, 2), (False, 1)):
        check = OrderCheck("n", gaps=gaps)
        records = [record(first, at=1), record(again, at=2), record(first, at=3)]
        found = [*check.breaks(records, ())]
        assert {one.kind.value for one in found} == {"repeat"}
        assert [one.other.sequence_number for one in found] == ["1"] * repeats


def test_a_repeat_is_no_number_that_was_missing() -> None:
    check = OrderCheck("n", gaps=True)
    assert read(check, [1, 2, 9, 2]) == [("gap", 9, 2), ("repeat", 2, 2)]
    assert check.summary.missing == 6


def test_the_order_goes_on_in_the_shards_of_a_split_and_a_merge() -> None:
    check = OrderCheck("n", gaps=True)
    assert read(check, [1, 2], "root") == []
    assert read(check, [3, 4], "child", ["root"]) == []
    assert read(check, [9], "other", key="x") == []
    assert read(check, [5, 4], "merged", ["child", "other"]) == [("repeat", 4, 4)]
    assert read(check, [3, 10], "merged", ["child", "other"], key="x") == [
        ("behind", 3, 9),
    ]
    assert check.summary.found[order_check.BreakKind.ELSEWHERE] == 0


def test_the_order_goes_on_through_a_shard_that_has_none_of_the_key() -> None:
    check = OrderCheck("n")
    assert read(check, [5], "root") == []
    assert read(check, [1], "child", ["root"], key="x") == []
    assert read(check, [3], "grandchild", ["child"]) == [("behind", 3, 5)]


def test_a_key_in_shards_side_by_side_is_said_once_and_has_no_gaps() -> None:
    check = OrderCheck("n", gaps=True)
    assert read(check, [1, 4], "left") == [("gap", 4, 1)]
    assert read(check, [2, 9], "right") == [("elsewhere", 2, 4)]
    assert read(check, [12], "left") == []
    assert read(check, [10, 9], "right") == [("repeat", 9, 9)]
    assert check.summary.missing == 0
    assert counts(check) == {"records": 7, "gap": 1, "elsewhere": 1, "repeat": 1}


def test_what_cannot_be_compared_is_counted() -> None:
    check = OrderCheck("n")
    odd = [
        b"[" * 100_000,
        b"no json",
        b"[1]",
        b"\xff",
        {"m": 1},
        {"n": None},
        {"n": True},
        {"n": [1]},
    ]
    assert [*check.breaks([record(one) for one in odd], ())] == []
    assert not check.summary.is_well, "nothing was compared"
    assert read(check, [1, "late", 2, 1.5]) == [("behind", 1.5, 2)]
    assert check.summary.without_value == len(odd) + 1
    assert "9 without a number or a text to compare as n" in check.summary.text("n")


def test_only_whole_numbers_count() -> None:
    check = OrderCheck("n", gaps=True)
    assert read(check, [1, 1.5, "late", "2"]) == []
    assert check.summary.without_value == 2


def test_nothing_to_read_is_well() -> None:
    assert OrderCheck("n").summary.is_well


def test_fields_may_be_in_objects_and_records_belong_together_by_another_one() -> None:
    check = OrderCheck("meta.n", per="meta.of")
    rows = [("a", 2), ("b", 1), ("a", 1), (None, 0), (3, 0)]
    records = [record({"meta": {"of": of, "n": n}}, key="random") for of, n in rows]
    (found,) = check.breaks(records, ())
    assert (found.kind.value, found.key, found.record.value) == ("behind", "a", 1)
    assert check.summary.without_value == 1


def test_the_keys_and_the_records_that_are_kept_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_check, "MOST_KEYS", 2)
    monkeypatch.setattr(order_check, "MOST_RECENT", 2)
    check = OrderCheck("n")
    read(check, [5], key="a")
    read(check, [5], key="b")
    read(check, [6], key="a")
    read(check, [5], key="c")
    assert check.summary.keys_forgotten == 1
    assert read(check, [4], key="b") == [], "it was not read for longest"
    assert read(check, [4], key="c") == [("behind", 4, 5)]
    assert read(check, [4], key="c") == [("repeat", 4, 4)]
    assert "2 keys were forgotten" in check.summary.text("n")
    read(check, [7, 8], key="d")
    assert read(check, [4], key="c") == [("behind", 4, 5)], "two others were read since"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (1, 1),
        (1.5, 1.5),
        ("0010", 10),
        ("late", "late"),
        ("1" * 101, "1" * 101),
        ("\u0661", "\u0661"),
        ("2026-11-21", "2026-11-21"),
        ("2026-11-21T08:30:00", "2026-11-21T08:30:00"),
        (True, None),
        (None, None),
        ([1], None),
    ],
)
def test_values_that_have_an_order(given: object, value: object) -> None:
    assert comparable(given) == value
    assert type(comparable(given)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T08:30:00.5Z",
        "2026-11-21T08:30:00.50+00:00",
        "2026-11-21T09:30:00.500000999+01:00",
        "2026-11-21T08:30:00.5z",
    ],
)
def test_an_instant_is_the_same_in_each_of_its_forms(text: str) -> None:
    assert comparable(text) == datetime(2026, 11, 21, 8, 30, 0, 500_000, timezone.utc)


def test_a_line_does_not_control_a_terminal() -> None:
    check = OrderCheck("n")
    records = [record({"n": value}, "\x1b[31m", at=at) for at, value in enumerate(["b\x1b", "a"])]
    (found,) = check.breaks(records, ())
    assert found.line("n") == ("behind s 1:0 key \\x1b[31m: n a is behind b\\x1b, of s 0:0")
