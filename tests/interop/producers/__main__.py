"""Has programs that others wrote fill streams of the local server, and reads them: what differs?

Needs Node.js, Go, Rust, a JDK and Maven for the programs in these languages, and leaves out, with a
sentence, those that cannot be had here. Exits with 1 if a door reads something else than another
one, or if a program's records differ in another way than `programs` says; with 2 if none was run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.producers.installing import command_of, make_certificate
from tests.interop.producers.judging import KINDS
from tests.interop.producers.known import given
from tests.interop.producers.playing import Play, ProgramError, Trouble, play
from tests.interop.producers.programs import PROGRAMS, Program
from tests.interop.producers.reading import new_session
from tests.interop.report import print_table
from tests.interop.servers import MissingToolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADING = (
    "program",
    "play",
    "calls",
    "stored",
    "packed",
    "read",
    *(kind.replace("_", " ") for kind in KINDS),
    "KCL drops",
    "filter drops",
    "seconds",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make interop-producers", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="programs with this in the name")
    parser.add_argument("--without-spark", action="store_true", help="leave out DataFrames")
    parser.add_argument("--show", action="store_true", help="print the first record of each play")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    wanted: Sequence[str] = arguments.only or [""]
    programs = [one for one in PROGRAMS if any(text in one.name for text in wanted)]
    folder = Path(tempfile.mkdtemp(prefix="sparkinesis-producers-"))
    os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")
    certificate = make_certificate(folder) if any(one.tls for one in programs) else None
    spark = None if arguments.without_spark else new_session()
    rows: list[Sequence[str]] = [_HEADING]
    wrong: list[str] = []
    try:
        for program in programs:
            wrong += _play_both(program, rows, spark, certificate, folder, show=arguments.show)
    except KeyboardInterrupt:
        wrong.append("interrupted: the other programs were not run")
    if len(rows) == 1:
        print("Nothing was run.", file=sys.stderr)
        return 2
    print_table(rows, texts=3)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def _play_both(
    program: Program,
    rows: list[Sequence[str]],
    spark: SparkSession | None,
    certificate: Path | None,
    folder: Path,
    *,
    show: bool,
) -> list[str]:
    """Add the rows of a program's two plays, and return what is wrong."""
    print(f"{program.name} ...", flush=True)
    try:
        command = command_of(program)
    except MissingToolError as error:
        print(f"  left out: {error}", flush=True)
        return []
    wrong: list[str] = []
    trusted = certificate if program.tls else None
    for name, expected in (("calm", program.calm), ("hard", program.hard)):
        began = time.monotonic()
        log = folder / f"{len(rows)}-{name}.log"
        try:
            done = _play(command, name, spark, trusted, log)
        except ProgramError as error:
            wrong.append(f"{program.name}, {name}: {error}")
            continue
        rows.append(_row(program, name, done, time.monotonic() - began))
        wrong += [f"{program.name}, {name}: {each}" for each in _wrong(program, expected, done)]
        if show:
            print(f"  {name}: {done.sample.key!r} {done.sample.hash_key!r}", end=" ")
            print(done.sample.data[:120])
    return wrong


def _play(
    command: Sequence[str],
    name: str,
    spark: SparkSession | None,
    certificate: Path | None,
    log: Path,
) -> Play:
    trouble = Trouble() if name == "hard" else None
    return play(command, given(), trouble=trouble, spark=spark, certificate=certificate, log=log)


def _wrong(program: Program, expected: frozenset[str], done: Play) -> list[str]:
    found = done.verdict.differences()
    said = [*done.unlike]
    if more := found - expected - program.may:
        said.append(f"the records differ in a way that is not known: {', '.join(sorted(more))}")
    if less := expected - found:
        said.append(f"the records do not differ any more: {', '.join(sorted(less))}")
    return said


def _row(program: Program, name: str, done: Play, seconds: float) -> Sequence[str]:
    verdict = done.verdict
    calls = ", ".join(f"{count} {name}" for name, count in sorted(done.calls.items()))
    figures = (
        done.stored,
        done.aggregates,
        verdict.read,
        *(getattr(verdict, kind) for kind in KINDS),
        done.kcl_drops,
        done.filter_drops,
    )
    cells = [f"{figure:,}" for figure in figures]
    return (program.name, name, calls, *cells, f"{seconds:.0f}")


if __name__ == "__main__":
    sys.exit(main())
