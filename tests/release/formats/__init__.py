"""The formats that outlive a program: what today's code writes of each, and what it reads.

Inputs are fixed, and the code is that of the package. What was read is described in words of this
folder (``sequence_number``, ``owner``, ...), and not by the names of inner classes: a golden file
keeps its meaning when a class changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.release.formats import (
    coordination,
    dead_letters,
    leases,
    offsets,
    record_lines,
    tables,
)


@dataclass(frozen=True)
class Format:
    """One format: a golden file of each version that changed it."""

    name: str
    """The golden file's name, without its ending."""
    write: Callable[[], Mapping[str, Any]]
    """Returns what today's code writes, as JSON has it, by what each is an example of."""
    read: Callable[[Any], Any]
    """Returns what today's code reads in one of them, as JSON has it."""


FORMATS = (
    Format("offsets", offsets.write, offsets.read),
    Format("batches", offsets.write_batches, offsets.read_batch),
    Format("catalog-tables", tables.write, tables.read),
    Format("leases", leases.write, leases.read),
    Format("coordination", coordination.write, coordination.read),
    Format("dead-letters", dead_letters.write, dead_letters.read),
    Format("record-lines", record_lines.write, record_lines.read),
)
