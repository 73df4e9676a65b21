"""What differs between what was put and what a reader of others read of it."""

from __future__ import annotations

from tests.interop.producers.known import given
from tests.interop.producers.readers import User, differences

PUT: list[User] = [(one.key, None, one.data) for one in given(("ann", "bob"), 3, 1)]


def test_what_is_read_as_it_was_put_does_not_differ() -> None:
    assert differences(PUT, PUT) == (0, 0, 0, 0)
    assert differences(PUT, PUT[::2] + PUT[1::2]) == (0, 0, 0, 0), "keys have no common order"


def test_each_difference_is_counted() -> None:
    assert differences(PUT, PUT[1:]) == (1, 0, 0, 0)
    assert differences(PUT, [*PUT[2:], *PUT[:2]]) == (0, 2, 0, 0)
    (_, _, data), *others = PUT
    assert differences(PUT, [("bob", None, data), *others]) == (0, 0, 1, 0)
    assert differences(PUT, [("ann", "7", data), *others]) == (0, 0, 0, 1)


def test_a_record_that_comes_twice_is_out_of_order() -> None:
    assert differences(PUT, [*PUT, PUT[-1]]) == (0, 1, 0, 0)
