"""Builds a binary column of parts, each of which is copied once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class JoinedBinary:
    """A binary column that is built of parts, none of which is needed after it was added."""

    def __init__(self, size: int) -> None:
        """size: the most bytes of all values together."""
        self._values = pa.allocate_buffer(size)
        self._view = memoryview(self._values).cast("B")
        self._size = 0
        self._offsets = [pa.array([0], pa.int32())]

    def add(self, part: pa.Array) -> None:
        _, offsets, values = part.buffers()
        size = part.total_values_length
        if size:
            self._view[self._size : self._size + size] = memoryview(values).cast("B")[:size]
        ends = pa.Array.from_buffers(pa.int32(), len(part), [None, offsets], offset=1)
        self._offsets.append(pc.add(ends, pa.scalar(self._size, pa.int32())))
        self._size += size

    def array(self) -> pa.Array:
        offsets = pa.concat_arrays(self._offsets)
        buffers = [None, offsets.buffers()[1], self._values]
        return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
