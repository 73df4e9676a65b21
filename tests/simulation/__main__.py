"""Runs histories for some time: ``python -m tests.simulation --seconds 600 --seed 1``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.simulation.histories import histories
from tests.simulation.history import History
from tests.simulation.invariants import check
from tests.simulation.story import tell
from tests.simulation.world import World, quiet_logging

_AT_A_TIME = 200


@dataclass
class Tally:
    histories: int = 0
    virtual_seconds: float = 0.0
    records: int = 0
    slowest: float = 0.0
    """The longest time, in virtual seconds, until everything was in order again."""

    def count(self, world: World) -> None:
        self.histories += 1
        self.virtual_seconds += world.scheduler.now
        self.records += len(world.places)
        self.slowest = max(self.slowest, world.settled_after or 0.0)

    def told(self, seconds: float) -> str:
        return (
            f"{self.histories} histories in {seconds:.0f} s ({self.histories / seconds:.1f}/s), "
            f"{self.virtual_seconds / 3600:.1f} virtual hours, {self.records} records; in order "
            f"again after {self.slowest:.0f} virtual seconds at most"
        )


def simulate(seed: int, tally: Tally, deadline: float) -> History | None:
    """Some histories; the simplest that fails, if one does."""
    failed: list[History] = []

    @seeded(seed)
    @settings(
        max_examples=_AT_A_TIME,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(histories())
    def run(history: History) -> None:
        if time.monotonic() > deadline and not failed:
            return
        world = World(history).run()
        tally.count(world)
        if check(world):
            failed.append(history)
            raise AssertionError

    try:
        run()
    except AssertionError:
        return failed[-1]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=None, help="another one each time, if not given"
    )
    given_ = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if given_.seed is None else given_.seed
    began, tally, rounds = time.monotonic(), Tally(), 0
    deadline = began + given_.seconds
    print(f"Seed {seed}")
    while time.monotonic() < deadline:
        with quiet_logging():
            failed = simulate(seed * 1_000_003 + rounds, tally, deadline)
        rounds += 1
        print(tally.told(time.monotonic() - began), flush=True)
        if failed is not None:
            print(tell(failed))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
