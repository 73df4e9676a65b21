"""Lists what an operation tells page by page, and refuses a listing that does not end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparkinesis.errors import ServiceError

MOST_PAGES = 1_000
"""A page has 1,000 shards or 1 MB of rows: no stream and no lease table has so many."""


def pages(
    what: str, token: str, ask: Callable[[Any], Mapping[str, Any]], most: int = MOST_PAGES
) -> Iterator[Mapping[str, Any]]:
    """Yield the answers that ``ask`` returns, given the token of the answer before; first None.

    what: the operation and on what, for the error. token: the field of an answer with the token of
    the next. Raises `ServiceError` for a token that was there before, and after ``most`` pages.
    """
    seen: set[str] = set()
    given: Any = None
    while True:
        answer = ask(given)
        yield answer
        given = answer.get(token)
        if not given:
            return
        mark = repr(given)
        if mark in seen or len(seen) + 1 >= most:
            why = "a token came a second time" if mark in seen else f"{most:,} pages came"
            raise ServiceError(
                f"{what} does not end: {why}. Check which server answers there: a proxy, or a "
                "server other than AWS's."
            )
        seen.add(mark)
