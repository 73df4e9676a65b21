"""The arguments of ``python -m benchmarks.peers``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.backlog import STOCKS, Stock
from benchmarks.peers.competitors import Competitor, before, named

ALL = ("backlog", "start", "steady")
CASES = (*ALL, "costs")
"""The cases that there are. ``costs`` measures again, and shortly, some of what the others do."""
OUTPUT = Path("build/peers.json")


@dataclass(frozen=True)
class Arguments:
    cases: tuple[str, ...]
    peers: tuple[Competitor, ...]
    """The competitors besides the sparkinesis of this checkout."""
    stocks: tuple[Stock, ...]
    """The backlogs that are read, the nearly empty one first."""
    tls: bool
    rounds: int
    scale: float
    json: Path
    plots: Path | None
    page: Path | None
    drawn: tuple[Path, ...]
    """The JSON of earlier runs that are shown and drawn, instead of a new run."""


def parsed(arguments: Sequence[str]) -> Arguments:
    """Parse the command line; exits with a message if that is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="CASES",
        default="",
        help=f"some of {','.join(CASES)}; default: {','.join(ALL)}",
    )
    parser.add_argument(
        "--peers", metavar="NAMES", default="", help="some of the peers, such as kcl-rs,boto3"
    )
    parser.add_argument(
        "--also",
        metavar="REVISION",
        action="append",
        default=[],
        help="a revision of sparkinesis in git, or a folder with one, as one more competitor",
    )
    parser.add_argument(
        "--backlogs",
        metavar="NAMES",
        default="",
        help=f"some of {','.join(each.stream for each in STOCKS[1:])}; default: all",
    )
    parser.add_argument(
        "--retrieval",
        choices=("fan-out", "polling"),
        help="read backlogs in this way only; by polling, sparkinesis keeps to a shard's 2 MB/s",
    )
    parser.add_argument(
        "--tls", action="store_true", help="over TLS, with a certificate made for the run"
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="a part of the records, such as 0.1"
    )
    parser.add_argument("--json", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    parser.add_argument("--plots", metavar="FOLDER", type=Path, help="draw SVG files there")
    parser.add_argument(
        "--page", metavar="FILE", type=Path, help="write the figures into this Markdown page"
    )
    parser.add_argument(
        "--from",
        metavar="FILE",
        dest="drawn",
        type=Path,
        action="append",
        default=[],
        help="show the JSON of an earlier run; of several parts, each with --from",
    )
    found = parser.parse_args(arguments)
    cases = _split(found.only) or ALL
    for case in cases:
        if case not in CASES:
            parser.error(f"There is no case {case}; there are: {', '.join(CASES)}.")
    if found.rounds < 1:
        parser.error(f"--rounds is {found.rounds}; at least 1 is needed.")
    if not 0 < found.scale <= 1:
        parser.error(f"--scale is {found.scale:g}; it must be above 0, and at most 1.")
    try:
        peers = named(_split(found.peers))
    except ValueError as error:
        parser.error(str(error))
    start, *others = STOCKS
    backlogs = _split(found.backlogs) or [each.stream for each in others]
    for name in backlogs:
        if name not in [each.stream for each in others]:
            parser.error(
                f"There is no backlog {name}; there are: "
                f"{', '.join(each.stream for each in others)}."
            )
    return Arguments(
        tuple(cases),
        (*peers, *map(before, found.also)),
        tuple(
            stock.read_by(found.retrieval)
            for stock in (start, *(each for each in others if each.stream in backlogs))
        ),
        found.tls,
        found.rounds,
        found.scale,
        found.json,
        found.plots,
        found.page,
        tuple(found.drawn),
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))
