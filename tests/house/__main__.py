"""Measures how the project is built: sizes of modules, names that stand twice, lines.

python -m tests.house                    # this checkout
python -m tests.house --walks            # and the files that a page passes: half a minute
python -m tests.house --names above      # and what was counted, by the start of a figure's name
python -m tests.house --json build/house.json ../another-checkout
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.house.figures import Figure, figures, walks_of

ROOT = Path(__file__).parents[2]


def table(found: Sequence[Figure]) -> str:
    """Return a line for each figure, aligned."""
    values = [f"{one.value:,}" for one in found]
    names, numbers = max(len(one.name) for one in found), max(map(len, values))
    return "\n".join(
        f"{one.name:{names}}  {value:>{numbers}} {one.unit}".rstrip()
        for one, value in zip(found, values, strict=True)
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.house",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="default: this checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--names", metavar="START", help="print what the figures so named counted")
    parser.add_argument("--walks", action="store_true", help="record tests.house.walks, too")
    arguments = parser.parse_args(given)
    root = arguments.root.resolve()
    found = figures(root) + (walks_of(root) if arguments.walks else [])
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    print(table(found))
    for one in found:
        if arguments.names is not None and one.name.startswith(arguments.names):
            print(f"\n{one.name}:", *one.names, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
