"""What happened in a run of the demo: its course in numbers, its shards, and its fullest sky."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from examples.flights.board import Board

SECONDS_BETWEEN_SAMPLES = 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    """The events put into the stream, and those that came out of Spark, until a moment."""

    seconds: float
    put: int
    out: int


@dataclass(frozen=True, slots=True)
class ShardSpan:
    """A shard's part of the hash keys, from 0 to 1, and the time for which it was open."""

    name: str
    first: float
    last: float
    opened: float
    closed: float | None
    """None: open until the end."""


@dataclass
class Story:
    """Filled while the demo runs; times are seconds from its start."""

    samples: list[Sample] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    """What was done to the stream and to the query."""
    listings: list[tuple[float, Mapping[str, range]]] = field(default_factory=list)
    """The open shards, by name, after each change."""
    sky: Board = field(default_factory=Board)
    """The board with the most aircraft in the air."""

    def note(self, seconds: float, put: int, out: int, board: Board) -> None:
        """Note how far the run is. May be called at any rate."""
        if len(board.in_the_air) > len(self.sky.in_the_air):
            self.sky = board
        if not self.samples or seconds - self.samples[-1].seconds >= SECONDS_BETWEEN_SAMPLES:
            self.samples.append(Sample(seconds, put, out))

    @property
    def seconds(self) -> float:
        """The time of the last sample; 0 without any."""
        return self.samples[-1].seconds if self.samples else 0.0

    def spans(self) -> list[ShardSpan]:
        """Return each shard that was ever open, in the order in which they opened."""
        opened: dict[str, tuple[float, range]] = {}
        closed: dict[str, float] = {}
        for at, shards in self.listings:
            for name, keys in shards.items():
                opened.setdefault(name, (at, keys))
            for name in opened.keys() - shards.keys():
                closed.setdefault(name, at)
        whole = float(2**128)
        return [
            ShardSpan(name, keys.start / whole, keys.stop / whole, at, closed.get(name))
            for name, (at, keys) in opened.items()
        ]

    def rates(self, seconds: float = 1.0) -> list[tuple[float, float, float]]:
        """Return the events put, and out of Spark, a second, in intervals of so many seconds.

        Each entry has the interval's end and both rates.
        """
        found = []
        before = Sample(0.0, 0, 0)
        for sample in self.samples:
            if (took := sample.seconds - before.seconds) >= seconds:
                put, out = (sample.put - before.put) / took, (sample.out - before.out) / took
                found.append((sample.seconds, put, out))
                before = sample
        return found
