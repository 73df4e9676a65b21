"""Lines of an input go on their way at once if it pauses, and in time if it does not."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence

import pytest

from sparkinesis.cli.streams.line_batches import LONGEST_WAIT, line_batches

Batches = Iterator[Sequence[bytes]]


def reading(*chunks: bytes) -> Callable[[], bytes]:
    left = [*chunks, b""]
    return lambda: left.pop(0)


def lines_of(batches: Batches) -> list[bytes]:
    return [line for batch in batches for line in batch]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"a\nb\n",), [b"a", b"b"]),
        ((b"a\nb",), [b"a", b"b"]),
        ((b"a", b"b\n", b"\n", b"c\r\n"), [b"ab", b"", b"c\r"]),
        ((), []),
        ((b"\n",), [b""]),
    ],
)
def test_lines_do_not_depend_on_chunks(chunks: Sequence[bytes], expected: list[bytes]) -> None:
    assert lines_of(line_batches(reading(*chunks), 100)) == expected


def test_a_pause_gives_an_empty_batch_once() -> None:
    chunks: queue.Queue[bytes] = queue.Queue()
    batches = line_batches(chunks.get, 100)
    chunks.put(b"a\nb")
    assert next(batches) == [b"a"]
    assert next(batches) == [], "nothing came for a while"
    chunks.put(b"c\n")
    assert next(batches) == [b"bc"], "one pause has one empty batch"
    chunks.put(b"")
    assert lines_of(batches) == []


def test_an_input_that_never_pauses_has_empty_batches_in_time() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += LONGEST_WAIT / 4
        return now

    found = list(line_batches(reading(*[b"x\n"] * 30), 100, clock))
    assert sum(map(len, found)) == 30
    gaps = "".join("." if batch else "|" for batch in found).split("|")
    assert len(gaps) >= 5
    assert max(map(len, gaps)) <= 4


def test_an_endless_line_is_not_kept() -> None:
    batches = line_batches(lambda: b"x" * 60, 100)
    assert next(batches) == [b"x" * 120]
    assert next(batches) in ([b"x" * 120], [])


def test_an_error_of_the_input_is_raised_after_its_lines() -> None:
    def read() -> bytes:
        if chunks:
            return chunks.pop()
        raise OSError("gone")

    chunks = [b"a\n"]
    batches = line_batches(read, 100)
    assert next(batches) == [b"a"]
    with pytest.raises(OSError, match="gone"):
        lines_of(batches)
