"""A listing has all pages, in order, and an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from sparkinesis.errors import ServiceError
from sparkinesis.stream.calls.answers.guards import MOST_PAGES, pages


def listing(*tokens: Any, **options: Any) -> tuple[Iterator[Mapping[str, Any]], list[Any]]:
    """A listing whose answers have these tokens, and the tokens that are asked for."""
    asked: list[Any] = []

    def ask(token: Any) -> dict[str, Any]:
        asked.append(token)
        return {"Page": len(asked), "Next": tokens[len(asked) - 1]}

    return pages("ListThings of a", "Next", ask, **options), asked


@pytest.mark.parametrize("end", [None, "", {}])
def test_each_page_is_asked_for_by_the_token_of_the_one_before(end: object) -> None:
    found, asked = listing("b", {"key": "c"}, end)
    assert [page["Page"] for page in found] == [1, 2, 3]
    assert asked == [None, "b", {"key": "c"}]
    found, asked = listing(end)
    assert [page["Page"] for page in found] == [1]


@pytest.mark.parametrize("tokens", [["b", "b"], ["b", "c", "b"], [{"key": "b"}, {"key": "b"}]])
def test_a_token_that_comes_again_is_an_error_behind_its_page(tokens: list[Any]) -> None:
    found, asked = listing(*tokens)
    for _ in tokens:
        next(found)
    with pytest.raises(ServiceError, match="ListThings of a does not end: a token came"):
        next(found)
    assert len(asked) == len(tokens)


def test_a_listing_may_have_so_many_pages() -> None:
    found, _ = listing("b", "c", None, most=3)
    assert len(list(found)) == 3
    found, asked = listing("b", "c", "d", "e", most=3)
    with pytest.raises(ServiceError, match="3 pages came"):
        list(found)
    assert len(asked) == 3
    numbers = count(1)
    with pytest.raises(ServiceError, match="1,000 pages came"):
        list(pages("ListThings of a", "Next", lambda _: {"Next": next(numbers)}))
    assert next(numbers) == MOST_PAGES + 1
