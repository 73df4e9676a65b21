"""Stories of histories that failed, for all subjects."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any


def told(failure: BaseException, tell: Callable[[Any], str], history: Any) -> str:
    """The story of a history that failed; or what is at fault where the simulation itself is."""
    try:
        return tell(history)
    except Exception:  # noqa: BLE001 - it is told
        trace = "".join(traceback.format_exception(failure))
        return f"{history!r}\n\nA fault of the simulation, not a broken invariant:\n{trace}"


def shortened(text: str, names: Mapping[str, str], most: int) -> str:
    """Records by their data and shards by their number, as far as they are known."""
    text = re.sub(r"\b\d{56}\b", lambda found: names.get(found[0], found[0]), text)
    return re.sub(r"shardId-0*(\d+)", r"shard \1", text)[:most]
