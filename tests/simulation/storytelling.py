"""Stories of histories that failed, for all subjects."""

from __future__ import annotations

import pprint
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def told(failure: BaseException, tell: Callable[[Any], str], history: Any) -> str:
    """The story of a history that failed; or what is at fault where the simulation itself is."""
    try:
        return tell(history)
    except Exception:  # noqa: BLE001 - it is told
        trace = "".join(traceback.format_exception(failure))
        return f"{history!r}\n\nA fault of the simulation, not a broken invariant:\n{trace}"


def page(
    history: object, lines: Iterable[str], wrong: list[str], names: Mapping[str, str], most: int
) -> str:
    """A history, what happened in it, and what was wrong, in lines of so many characters."""
    told = (shortened(text, names, most) for text in lines)
    ends = (shortened(text, names, most) for text in wrong or ["Nothing was wrong."])
    return "\n".join([pprint.pformat(history, width=100, sort_dicts=False), "", *told, "", *ends])


def shortened(text: str, names: Mapping[str, str], most: int) -> str:
    """Records by their data and shards by their number, as far as they are known."""
    text = re.sub(r"\b\d{56}\b", lambda found: names.get(found[0], found[0]), text)
    return re.sub(r"shardId-0*(\d+)", r"shard \1", text)[:most]
