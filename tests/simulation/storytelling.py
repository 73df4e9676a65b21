"""Prints the story of a failing history, for all subjects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any


class Story:
    """A lazy `hypothesis.note`: computed only for the history that hypothesis shows in the end."""

    def __init__(self, tell: Callable[[Any], str], history: Any) -> None:
        self._tell = tell
        self._history = history

    def __repr__(self) -> str:
        return self._tell(self._history)


def shortened(text: str, names: Mapping[str, str], most: int) -> str:
    """Records by their data and shards by their number, as far as they are known."""
    text = re.sub(r"\b\d{56}\b", lambda found: names.get(found[0], found[0]), text)
    return re.sub(r"shardId-0*(\d+)", r"shard \1", text)[:most]
