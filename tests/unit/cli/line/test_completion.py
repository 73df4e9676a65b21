"""The words of bash's command line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from sparkinesis.cli.line import completion
from tests import pace


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        (["sparkinesis", "re"], 1, (["sparkinesis", "re"], 1)),
        (["sparkinesis", "top", ""], 2, (["sparkinesis", "top", ""], 2)),
        (["sparkinesis", "top"], 2, (["sparkinesis", "top"], 2)),
        (
            ["s", "top", "--endpoint", "http", ":", "//h", ":", "1", "ab"],
            8,
            (["s", "top", "--endpoint", "http://h:1", "ab"], 4),
        ),
        (["s", "top", "--stream", "=", "fl"], 4, (["s", "top", "--stream=fl"], 2)),
        (["s", "top", "--stream", "="], 3, (["s", "top", "--stream="], 2)),
        (["s", "top", "--stream", "1", ":", "a", ":"], 6, (["s", "top", "--stream", "1:a:"], 3)),
    ],
)
def test_words_that_bash_split_are_joined(
    words: list[str], at: int, expected: tuple[list[str], int]
) -> None:
    assert completion.joined(words, at) == expected


def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    over = threading.Event()

    def pages() -> Iterator[list[str]]:
        yield ["a"]
        over.wait()
        yield ["b"]

    began = time.monotonic()
    assert completion._within(0.2, pages) == ["a"]
    assert time.monotonic() - began < pace.seconds(2)
    over.set()
