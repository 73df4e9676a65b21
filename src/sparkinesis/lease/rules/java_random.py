"""The part of ``java.util.Random`` that a shuffle needs, so that Java workers get the same order.

Its algorithm is part of Java's documented API: a linear congruential generator of 48 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 0xB
_MASK = (1 << 48) - 1


class JavaRandom:
    """Generates the same numbers as ``new java.util.Random(seed)``."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def next_int(self, bound: int) -> int:
        """Return a number from 0 to ``bound`` - 1. Raises ValueError unless 1 <= bound < 2**31."""
        if not 1 <= bound < 1 << 31:
            raise ValueError(f"bound is {bound}; it must be from 1 to 2**31 - 1")
        if bound & (bound - 1) == 0:
            return bound * self._next_31_bits() >> 31
        while True:
            bits = self._next_31_bits()
            value = bits % bound
            # Skip the incomplete last block of `bound` numbers, which would favour low numbers.
            if bits - value + bound <= 1 << 31:
                return value

    def _next_31_bits(self) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return self._state >> 17


def java_shuffle(items: Iterable[T], seed: int) -> list[T]:
    """Return the items in the order after ``Collections.shuffle(items, new Random(seed))``."""
    shuffled, random = list(items), JavaRandom(seed)
    for i in range(len(shuffled), 1, -1):
        j = random.next_int(i)
        shuffled[i - 1], shuffled[j] = shuffled[j], shuffled[i - 1]
    return shuffled


def java_order(text: str) -> bytes:
    """Return a key that sorts like Java's ``String.compareTo``: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
