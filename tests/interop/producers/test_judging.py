"""Of the judge of programs: each kind of difference is counted, and no other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparkinesis.stream.shard import hash_key
from tests.interop.producers.judging import Seen, judge, kcl_drops, unlike
from tests.interop.producers.known import given, marks

GIVEN = given(("ann", "10"), each=3, size=5)
SHARDS = {"0": (), "1": (), "2": ("0",), "3": ("0",), "4": ("2", "1")}


def seen(shards: Sequence[str] = ("1",)) -> list[Seen]:
    """All records as they were given, over the shards in turn."""
    return [
        Seen(one.key, None, one.data, shards[one.number % len(shards)], (at, 0))
        for at, one in enumerate(GIVEN)
    ]


def test_records_as_given_do_not_differ() -> None:
    verdict = judge(GIVEN, seen(), SHARDS)
    assert verdict.read == 6
    assert not verdict.differences()


def test_the_given_records_are_found_in_whatever_they_are_wrapped_in() -> None:
    assert list(marks(b'{"m":"' + GIVEN[0].data + b'"}' + GIVEN[3].data)) == [
        ("ann", 0),
        ("10", 1),
    ]


@pytest.mark.parametrize(
    ("kind", "count", "changed"),
    [
        ("lost", 1, seen()[1:]),
        ("doubled", 1, [*seen(), replace(seen()[-1], position=(9, 0))]),
        ("relabelled", 1, [replace(seen()[0], key="10"), *seen()[1:]]),
        ("hash_keys", 1, [replace(seen()[0], hash_key="0"), *seen()[1:]]),
        ("wrapped", 1, [replace(seen()[0], data=b"{" + GIVEN[0].data), *seen()[1:]]),
        ("out_of_order", 1, [replace(seen()[0], position=(9, 0)), *seen()[1:]]),
        ("out_of_order", 2, [replace(seen()[4], position=(-1, 0)), *seen()[:4], seen()[5]]),
        ("out_of_order", 4, seen(("4", "2", "0"))),
        ("scattered", 2, seen(("0", "1"))),
        ("scattered", 2, seen(("2", "3"))),
    ],
)
def test_each_difference_is_counted(kind: str, count: int, changed: list[Seen]) -> None:
    verdict = judge(GIVEN, changed, SHARDS)
    assert verdict.differences() == {kind}
    assert getattr(verdict, kind) == count


def test_a_record_that_was_never_given_is_wrapped() -> None:
    strange = Seen("eve", None, b"~eve~0~", "1", (9, 0))
    assert judge(GIVEN, [*seen(), strange], SHARDS).differences() == {"wrapped"}


def test_a_child_follows_its_parents() -> None:
    assert not judge(GIVEN, seen(("0", "2", "4")), SHARDS).differences()


def test_a_repeated_record_is_not_out_of_order_again() -> None:
    first = [one for one in seen() if one.key == "ann"]
    again = [replace(one, position=(9 + at, 0)) for at, one in enumerate(first)]
    assert judge(GIVEN, [*seen(), *again], SHARDS).differences() == {"doubled"}


def test_joined_records_are_counted_and_wrapped() -> None:
    joined = Seen("ann", None, GIVEN[0].data + b"\n" + GIVEN[2].data, "1", (0, 0))
    verdict = judge(GIVEN, [joined, seen()[1], *seen()[3:]], SHARDS)
    assert verdict.differences() == {"joined", "wrapped"}
    assert (verdict.joined, verdict.wrapped, verdict.read) == (2, 2, 5)


def test_a_kcl_drops_an_aggregate_with_a_key_elsewhere() -> None:
    packed = [replace(one, position=(7, at)) for at, one in enumerate(seen())]
    ann, ten = hash_key("ann", None), hash_key("10", None)
    everything = {"1": (0, 2**128 - 1)}
    assert kcl_drops(packed, [("1", 7)], everything) == 0
    assert kcl_drops(packed, [("1", 7)], {"1": (ann, ann)}) == 6
    assert kcl_drops(packed, [], {"1": (ann, ann)}) == 0
    of_ten = [replace(one, hash_key=str(ten)) for one in packed]
    assert kcl_drops(of_ten, [("1", 7)], {"1": (ten, ten)}) == 0


def test_doors_are_compared_by_what_they_deliver_and_not_by_order() -> None:
    assert not unlike({"a": seen(), "b": reversed(seen())})
    assert unlike({"a": seen(), "b": [*seen()[1:], replace(seen()[0], key="b")]}) == [
        "b has 1 records that a does not have, and lacks 1"
    ]
