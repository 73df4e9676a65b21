"""What a scenario has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.interop.judge import Verdict
from tests.interop.kcl.rows import Comparison


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    problems: list[str]
    """What is wrong beside the verdict, one sentence each."""
    comparisons: list[Comparison] = field(default_factory=list)
    recorded: dict[str, Any] = field(default_factory=dict)
    """What goes into the fixture of rows."""
    repeats: Mapping[str, int] = field(default_factory=dict)
    """The number of records that came again, by the cause."""
    may_repeat: bool = False
    """True if workers were killed, or took leases without a request."""

    @property
    def is_good(self) -> bool:
        found = self.verdict
        is_whole = not found.lost and not found.out_of_order
        return is_whole and not self.problems and (self.may_repeat or not found.repeated)
