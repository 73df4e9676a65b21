"""Writes down what a Java KCL assigns in drawn fleets, for tests.

python -m tests.interop.kcl.decider   # needs what `make interop` needs

All leases of a worker have the same throughput, as the KCL picks from them at random: only their
number is kept. A fleet whose leases are vacant is not balanced, too, in the same run. It has one
idle worker at most: among several, Java's choice is chance.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.kcl.java import build, classpath

FIXTURE = Path(__file__).parents[2] / "fixtures" / "kcl-3.5.1-assignments.json"
FLEETS = 60
_MAIN = "software.amazon.kinesis.coordinator.assignment.JavaDecider"


def draw(rng: random.Random) -> dict[str, Any]:
    """Return a fleet: its members (metrics, limits) and leases (key, owner, KB/s, vacant since)."""
    metrics = rng.choice([[], ["C"], ["C"], ["C", "M"]])
    names = [f"w{n}" for n in range(rng.randint(2, 7))]
    members = {
        who: {name: [round(rng.uniform(5, 95), 3), rng.choice([70, 90, 100])] for name in metrics}
        for who in names
    }
    if metrics and rng.random() < 0.2:
        members[names[-1]] = {}  # a worker without metrics among others
    leases: list[list[Any]] = []
    has_idle = rng.random() < 0.3
    for who in names[1:] if has_idle else names:
        kbps = round(rng.uniform(1, 100), 3)
        count = rng.choice([1, 2, 4, 8])
        leases += [[f"{who}-{n}", who, kbps, None] for n in range(count)]
    if rng.random() < 0.4:
        for n in range(rng.randint(1, 12)):
            owner = rng.choice([None, None, rng.choice(names), "dead"])
            known = rng.choice([None, round(rng.uniform(1, 100), 3)])
            leases.append([f"v{n}", owner, known, n + 1])
    return {"members": members, "leases": leases}


def _lines(fleet: dict[str, Any]) -> Iterator[str]:
    for who, metrics in fleet["members"].items():
        yield " ".join(
            [
                "worker",
                who,
                *(f"{name} {value} {limit}" for name, (value, limit) in metrics.items()),
            ]
        )
    for lease in fleet["leases"]:
        yield " ".join(["lease", *("-" if value is None else str(value) for value in lease)])
    yield "plan"


def main() -> None:
    build()
    rng = random.Random(1)
    fleets = [draw(rng) for _ in range(FLEETS)]
    asked = "\n".join(line for fleet in fleets for line in _lines(fleet))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    output = subprocess.run(
        ["java", quiet, "-cp", classpath(), _MAIN],
        input=asked + "\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answers = output.split("end\n")[:-1]
    for fleet, answer in zip(fleets, answers, strict=True):
        owners = {key: owner for key, owner, *_ in fleet["leases"]}
        is_vacant = any(since is not None for *_, since in fleet["leases"])
        told = sorted(line.split() for line in answer.splitlines())
        if is_vacant:
            fleet["assigned"] = {key: to for what, key, to in told if what == "assigned"}
        else:
            pairs = Counter((owners[key], to) for _, key, to in told)
            fleet["balanced"] = [[*pair, number] for pair, number in sorted(pairs.items())]
    texts = [json.dumps(fleet) for fleet in fleets]
    FIXTURE.write_text("[\n" + ",\n".join(texts) + "\n]\n")
    print(f"{len(fleets)} fleets are in {FIXTURE}.")


if __name__ == "__main__":
    main()
