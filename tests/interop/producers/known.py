"""The user records that each program is given, and finds them again in whatever it made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

KEYS = ("ann", "10", "2", "bob", "000123", "1")
"""Some look like numbers, and are not in the order of numbers."""
EACH = 200
_BYTES = 3_000
_MARK = re.compile(rb"~([a-z0-9]+)~(\d+)~")


@dataclass(frozen=True, slots=True)
class Given:
    """A user record as a program gets it. number: from 0 on, in the order of its key."""

    key: str
    number: int
    data: bytes

    def line(self) -> bytes:
        """The line of JSON by which a program is told of it."""
        return json.dumps({"key": self.key, "data": self.data.decode()}).encode() + b"\n"


def given(keys: tuple[str, ...] = KEYS, each: int = EACH, size: int = _BYTES) -> list[Given]:
    return [_given(key, number, size) for number in range(each) for key in keys]


def _given(key: str, number: int, size: int) -> Given:
    mark = f"~{key}~{number}~"
    return Given(key, number, json.dumps({"mark": mark, "more": "x" * size}).encode())


def marks(data: bytes) -> Iterator[tuple[str, int]]:
    """The key and number of each given record within bytes, whatever they are wrapped in."""
    for key, number in _MARK.findall(data):
        yield key.decode(), int(number)
