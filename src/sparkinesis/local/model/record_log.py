"""Encoded records one after another, in blocks of bytes: the log of one shard in one encoding.

Blocks are large and few. So a page is a copy of some ranges of bytes, whatever the number of its
records; and the garbage collector, which walks every object of every list, has nothing to walk.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

_BLOCK_BYTES = 1 << 20


Span = list[tuple[bytes | bytearray, int, int]]
"""Consecutive records, as ranges of blocks: (block, start, end). A bytearray still grows."""


def buffers(span: Span) -> list[memoryview]:
    """Return the bytes of the records, for joining; also while others append to the log."""
    return [
        # A view of a bytearray would keep it from growing, so its range is copied.
        memoryview(block)[start:end] if isinstance(block, bytes) else memoryview(block[start:end])
        for block, start, end in span
    ]


class RecordLog:
    """Records by index; the first of those that are left has index 0. `drop` removes the oldest."""

    def __init__(self) -> None:
        # Offsets count from the first record ever.
        self._ends = array("q")
        self._end = 0
        self._dropped_to = 0
        self._blocks: list[bytes | bytearray] = []
        self._starts: list[int] = []
        self._last = self._begin_block()

    def extend(self, records: Sequence[bytes]) -> None:
        ends = accumulate(map(len, records), initial=self._end)
        next(ends)
        self._ends.extend(ends)
        self._end = self._ends[-1]
        self._last += b"".join(records)
        if len(self._last) >= _BLOCK_BYTES:
            self._blocks[-1] = bytes(self._last)
            self._last = self._begin_block()

    def span(self, first: int, last: int) -> Span:
        """Return the records from `first` up to, excluding, `last`."""
        span: Span = []
        start, end = self._start_of(first), self._start_of(last)
        place = bisect_right(self._starts, start) - 1
        while start < end:
            block, begin = self._blocks[place], self._starts[place]
            stop = min(end, begin + len(block))
            span.append((block, start - begin, stop - begin))
            start, place = stop, place + 1
        return span

    def within(self, index: int, skip: int, size: int) -> bytes:
        """Return `size` bytes of one record, from its byte `skip` on."""
        ((block, start, _),) = self.span(index, index + 1)
        return bytes(block[start + skip : start + skip + size])

    def drop(self, count: int) -> None:
        """Remove the oldest records, and the blocks in which no other record lies."""
        self._dropped_to = self._start_of(count)
        del self._ends[:count]
        unused = bisect_right(self._starts, self._dropped_to) - 1
        del self._blocks[:unused], self._starts[:unused]

    def _start_of(self, index: int) -> int:
        return self._ends[index - 1] if index else self._dropped_to

    def _begin_block(self) -> bytearray:
        block = bytearray()
        self._blocks.append(block)
        self._starts.append(self._end)
        return block
