"""Checks the specification of the lease protocol, ``spec/Leases.tla``, by the model checker TLC.

python -m tests.spec                 # all models of minutes, and each planted fault
python -m tests.spec --only faults   # or: models, long
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sparkinesis.local.java import use_java
from tests.spec.models import LONG, MODELS, Model, faults
from tests.spec.tlc import Found, TlcError, check, fetch

PARTS = ("models", "faults", "long")


def _chosen(parts: list[str]) -> Iterator[Model]:
    if "models" in parts:
        yield from MODELS
    if "faults" in parts:
        yield from faults()
    if "long" in parts:
        yield from LONG


def _row(model: Model, found: Found) -> tuple[str, ...]:
    good = found.violated == model.breaks
    verdict = f"{found.violated} is violated" if found.violated else "holds"
    return (
        model.name if model.breaks is None else f"fault: {model.name}",
        f"{found.states:,}",
        str(found.steps or ""),
        f"{found.seconds:.0f} s",
        f"[{'green' if good else 'red'}]{verdict}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make spec", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="default: models, faults")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of TLC")
    given = parser.parse_args()
    table = Table(title="The lease protocol", title_justify="left")
    for name in ("model", "states", "steps", "took", "verdict"):
        table.add_column(name, justify="right" if name in ("states", "steps", "took") else "left")
    is_good = True
    try:
        use_java()
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else "java"
        fetch()
        for model in _chosen(given.only or ["models", "faults"]):
            print(f"{model.name} ...", file=sys.stderr, flush=True)
            found = check(model, java, given.threads)
            is_good = is_good and found.violated == model.breaks
            table.add_row(*_row(model, found))
            said = f"  {found.violated or 'holds'}, {found.states:,} states, {found.seconds:.0f} s"
            print(said, file=sys.stderr, flush=True)
    except (TlcError, RuntimeError) as error:
        print(f"The specification cannot be checked here: {error}", file=sys.stderr)
        return 2
    Console().print(table)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
