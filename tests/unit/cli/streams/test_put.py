"""Lines as records: their keys and their data, and which line is refused and why."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from sparkinesis.cli.streams.put import (
    LONGEST_WAIT,
    OutgoingLines,
    Parse,
    line_batches,
    with_key,
    with_key_of,
)
from sparkinesis.cli.streams.record_objects import parse_record


def outgoing(parse: Parse, most_bytes: int = 100) -> OutgoingLines:
    return OutgoingLines(parse, most_bytes)


def test_a_key_for_all_lines_or_a_random_one_for_each() -> None:
    made, error = outgoing(with_key("k")).records([b"a", b"", b"c\r"])
    assert (made, error) == ([("k", None, b"a"), ("k", None, b""), ("k", None, b"c\r")], None)
    made, _ = outgoing(with_key(None)).records([b"a", b"a"])
    assert made[0][0] != made[1][0]
    assert all(re.fullmatch("[0-9a-f]{16}", key) for key, _, _ in made)


def test_the_key_of_a_field_leaves_the_line_as_it_is() -> None:
    lines = [b'{"id": 7, "x": [1]}', b' {"id":"\xc3\xa9"}']
    made, error = outgoing(with_key_of("id")).records(lines)
    assert (made, error) == ([("7", None, lines[0]), ("\u00e9", None, lines[1])], None)


def test_an_object_has_keys_and_data() -> None:
    lines = [
        b'{"data": "a\\nb", "partition_key": "p", "explicit_hash_key": "5", "shard": "s"}',
        b'{"data_base64": "/wA=", "partition_key": "q", "explicit_hash_key": null}',
        b'{"data": ""}',
    ]
    made, error = outgoing(parse_record).records(lines)
    assert error is None
    assert made[:2] == [("p", "5", b"a\nb"), ("q", None, b"\xff\x00")]
    assert made[2][1:] == (None, b"")
    assert made[2][0], "a random key"


@pytest.mark.parametrize(
    ("parse", "line", "why"),
    [
        (with_key("k"), b"a" * 100, "data and partition key have 101 bytes, and a record"),
        (with_key("k"), b"a" * 11_000, "it has more than 100 bytes"),
        (with_key("k" * 257), b"a", "its partition key has 257 characters"),
        (with_key_of("id"), b"no", "it is not JSON"),
        (with_key_of("id"), b"\xff", "it is not JSON"),
        (with_key_of("id"), b"[1]", "it is JSON, but not an object"),
        (with_key_of("id"), b'{"ID": 1}', 'it has no text or whole number "id"'),
        (with_key_of("id"), b'{"id": true}', 'it has no text or whole number "id"'),
        (with_key_of("id"), b'{"id": ""}', "its partition key has 0 characters"),
        (parse_record, b"{}", 'it has not one of "data" and "data_base64"'),
        (parse_record, b'{"data":"","data_base64":""}', 'it has not one of "data"'),
        (parse_record, b'{"data": 1}', 'its "data" is not a text'),
        (parse_record, b'{"data_base64": "?"}', 'its "data_base64" is not base64'),
        (parse_record, b'{"data": "", "explicit_hash_key": "x"}', "its explicit hash key is 'x'"),
    ],
)
def test_a_bad_line_is_named_and_ends_the_records(parse: Parse, line: bytes, why: str) -> None:
    ends = {with_key("k"): b"first"}
    good = ends.get(parse) or b'{"id": 1, "data": "first"}'
    lines = outgoing(parse)
    if "257" not in why:
        made, error = lines.records([good])
        assert (len(made), error) == (1, None)
    made, error = lines.records([line, good])
    assert made == []
    assert error is not None
    number = 1 if "257" in why else 2
    assert str(error).startswith(f"Line {number} cannot be put: {why}")
    assert str(error).endswith("All lines before it are put, and none after it.")


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
