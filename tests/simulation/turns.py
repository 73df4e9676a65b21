"""The turns of the subjects: each gets the same time, although their histories differ in length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tests.simulation.rounds import HISTORIES, Round

_LONGEST = 10.0
"""The most seconds of one turn."""
_TURNS = 4
"""The turns that each subject should get at least."""


class Turns:
    """Draws rounds; the next one is of the subject that has had the least time.

    ``seconds``: the duration of the run; None: until ``histories`` were drawn, which are shared out
    evenly. ``jobs``: the number of rounds that are played at the same time.
    """

    def __init__(
        self,
        names: Sequence[str],
        seed: int,
        *,
        jobs: int,
        seconds: float | None = None,
        histories: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._seed = seed
        self._clock = clock
        self._deadline = float("inf") if seconds is None else clock() + seconds
        self._turn = _LONGEST
        if seconds is not None:
            self._turn = min(_LONGEST, seconds * jobs / len(names) / _TURNS)
        self._spent = dict.fromkeys(names, 0.0)
        """Seconds of each subject's rounds; a round that is being played counts as a whole turn."""
        self._rounds = dict.fromkeys(names, 0)
        self._left: dict[str, float] = dict.fromkeys(names, float("inf"))
        if histories is not None:
            share, more = divmod(histories, len(names))
            self._left = {name: share + (at < more) for at, name in enumerate(names)}

    def take(self) -> Round | None:
        """Draw the next round; None if the time is over or all histories were drawn."""
        names = [name for name, left in self._left.items() if left > 0]
        if not names or self._clock() > self._deadline:
            return None
        name = min(names, key=self._spent.__getitem__)
        size = int(min(HISTORIES, self._left[name]))
        # A turn ends early only where the time is shared out: else the histories are counted.
        turn = self._turn if self._left[name] == float("inf") else float("inf")
        drawn = Round(name, self._seed, self._rounds[name], size, self._deadline, turn)
        self._left[name] -= size
        self._rounds[name] += 1
        self._spent[name] += self._turn
        return drawn

    def end(self, drawn: Round, seconds: float) -> None:
        """Note how long a round has taken."""
        self._spent[drawn.subject] += seconds - self._turn
