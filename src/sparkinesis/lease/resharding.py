"""Trying again while a reshard makes the service's list of shards contradict itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparkinesis.errors import InconsistentShardsError

_T = TypeVar("_T")

_TRIES = 5


def through_reshard(task: Callable[[], _T], wait: Callable[[float], object]) -> _T:
    """What ``task`` returns, which lists shards; it is run again, a second later, a few times.

    Raises the `InconsistentShardsError` of the last try.
    """
    for _ in range(_TRIES - 1):
        try:
            return task()
        except InconsistentShardsError:
            wait(1.0)
    return task()
