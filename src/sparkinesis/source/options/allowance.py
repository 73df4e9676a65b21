"""The amount of records that one batch may read."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """A limit in rows, and in bytes of data as Kinesis stores it; infinity for no limit."""

    rows: float = math.inf
    bytes: float = math.inf

    @property
    def is_limited(self) -> bool:
        return self.rows < math.inf or self.bytes < math.inf


NO_LIMIT = Allowance()
