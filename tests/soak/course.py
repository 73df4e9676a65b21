"""The schedule of events between two calm stretches, drawn from the seed beforehand."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.soak.setting import FEWEST_SHARDS, MOST_SHARDS

ACTS = (
    "split",
    "split",
    "merge",
    "kill worker",
    "pause worker",
    "terminate worker",
    "kill fleet worker",
    "kill query",
)
"""Dealt like cards, all before any comes again."""
LONGEST_GAP = 20.0
"""Seconds between two acts, on average; less where all would not happen otherwise."""


@dataclass(frozen=True, slots=True)
class Act:
    """``at``: seconds after the storm began."""

    at: float
    name: str


def course(seconds: float, seed: int) -> list[Act]:
    """All acts of a storm that lasts so long; each kind at least once."""
    rng = random.Random(f"{seed} course")
    gap = min(LONGEST_GAP, seconds / (len(ACTS) + 2))
    acts: list[Act] = []
    deck: list[str] = []
    at = gap / 2
    while at < seconds:
        if not deck:
            deck = rng.sample(ACTS, len(ACTS))
        acts.append(Act(at, deck.pop()))
        at += gap * rng.uniform(0.6, 1.3)
    return acts


def reshard(wanted: str, open_shards: int) -> str:
    """``split`` or ``merge``: what is wanted, within the bounds for open shards."""
    if open_shards >= MOST_SHARDS:
        return "merge"
    return "split" if open_shards <= FEWEST_SHARDS else wanted
