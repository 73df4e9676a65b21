"""A world follows from its history alone: no clock, thread, hash or address has a say in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.history import (
    Behaviour,
    Crash,
    History,
    Merge,
    Pause,
    Put,
    Shutdown,
    Split,
    Start,
    Trouble,
)
from tests.simulation.world import World, digest

EVENTFUL = History(
    seed=7,
    shards=3,
    events=(
        (0.0, Start(0)),
        (1.0, Start(1)),
        *((5.0 + n, Put(n % 5, 3)) for n in range(60)),
        (10.0, Start(2)),
        (20.0, Trouble("timeout_after", 0.2, 20.0)),
        (25.0, Split(0.5)),
        (30.0, Crash(1)),
        (35.0, Pause(0, 15.0)),
        (45.0, Start(1, same_id=True)),
        (50.0, Merge(0.0)),
        (60.0, Shutdown(2)),
    ),
    behaviour=Behaviour(checkpoint=0.5, odd_checkpoint=0.2, prepare=0.2, fail=0.1, slow=0.2),
    duration=90.0,
)


def test_the_same_history_is_the_same_world_twice_in_a_process() -> None:
    assert digest(World(EVENTFUL).run()) == digest(World(EVENTFUL).run())


def test_another_seed_is_another_world() -> None:
    other = History(**{**vars(EVENTFUL), "seed": 8})
    assert digest(World(EVENTFUL).run()) != digest(World(other).run())


def test_the_same_history_is_the_same_world_in_any_process() -> None:
    program = (
        "from tests.simulation.test_determinism import EVENTFUL\n"
        "from tests.simulation.logs import quiet_logging\n"
        "from tests.simulation.world import World, digest\n"
        "with quiet_logging():\n"
        "    print(digest(World(EVENTFUL).run()))"
    )
    printed = {print_of(program, hash_seed=seed) for seed in ("1", "2")}
    assert printed == {digest(World(EVENTFUL).run())}


def test_drawn_histories_do_not_depend_on_the_modules_that_are_loaded() -> None:
    """Hypothesis draws constants of loaded modules, too, unless tests/conftest.py prevents it."""
    program = (
        "import hashlib, tests.conftest\n"
        "from hypothesis import given\n"
        "from tests.simulation.drawn import drawn\n"
        "from tests.simulation.query.histories import histories\n"
        "seen = hashlib.sha256()\n"
        "@drawn(histories=40)\n"
        "@given(history=histories())\n"
        "def draw(history): seen.update(repr(history).encode())\n"
        "draw()\n"
        "print(seen.hexdigest())"
    )
    more = "import sparkinesis.local, tests.simulation.world\n" + program
    assert print_of(program) == print_of(more)


def print_of(program: str, hash_seed: str = "0") -> str:
    """Return what ``program`` prints in a new process."""
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{root / 'src'}:{root}"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
