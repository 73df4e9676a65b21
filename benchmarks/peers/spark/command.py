"""The command line: what is measured, against what, and how often."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from benchmarks import tls
from benchmarks.peers.spark import backlog, live
from benchmarks.peers.spark.competitors import (
    OURS,
    WAYS,
    Competitor,
    by_default,
    of_backlog,
)
from benchmarks.peers.spark.records import BACKLOGS
from benchmarks.peers.spark.rounds import Measured, alternating, results
from benchmarks.peers.spark.running import ROOT
from benchmarks.report import Result, print_table, write_json

FOLDER = ROOT / "build" / "peers" / "spark"
VARIABLE = "AWS_KINESIS_CONNECTOR"
CORES = 2

CPU = {"CPU s": "s", "CPU s of the JVM": "s", "CPU s of Python": "s", "CPU s of the server": "s"}
BACKLOG_FIGURES = {"rows/s": "rows/s", "rows/s with the start": "rows/s", **CPU}
LIVE: Mapping[str, tuple[Callable[[Competitor], Measured], dict[str, str]]] = {
    "idle": (
        live.idle,
        {
            "GetRecords a minute and shard": "calls",
            "of these refused by the limit": "calls",
            "all calls a minute": "calls",
            "CPU s in a minute": "s",
            "CPU s of the JVM": "s",
            "CPU s of Python": "s",
            "CPU s of the server": "s",
        },
    ),
    "latency": (
        live.latency,
        {
            "start() to the first rows": "s",
            "put to foreachBatch, median": "ms",
            "put to foreachBatch, 99 %": "ms",
        },
    ),
    "reshard": (
        live.reshard,
        {
            "records lost": f"of {live.RESHARD_RECORDS:,}",
            "rows repeated": "rows",
        },
    ),
    "resharded": (
        live.resharded,
        {
            "records lost": f"of {live.RESHARDED_RECORDS:,}",
            "rows repeated": "rows",
        },
    ),
    "twice": (
        live.twice,
        {
            "batches": "batches",
            "batches that differ": "batches",
            "rows that differ": "rows",
            "rows that both saw, of those put": f"of {live.TWICE_RECORDS:,}",
        },
    ),
}
PARTS = ("backlog", *LIVE)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; ends the process for one that is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers spark",
        description="Measure the Spark source beside awslabs' connector, on the same Spark.",
    )
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(PARTS),
        metavar="PART,...",
        help=f"of {', '.join(PARTS)}; default: all",
    )
    parser.add_argument(
        "--connector",
        type=Path,
        metavar="JAR",
        help=f"the connector's jar with what it needs; default: ${VARIABLE}, or the one jar in "
        f"{os.path.relpath(FOLDER, ROOT)}",
    )
    parser.add_argument("--rounds", type=_positive, default=5, help="default: 5")
    parser.add_argument(
        "--scale", type=_fraction, default=1.0, help="the part of the backlogs' rows; default: 1"
    )
    parser.add_argument(
        "--backlogs",
        type=lambda text: text.split(","),
        default=[each.name for each in BACKLOGS],
        metavar="NAME,...",
        help=f"of {', '.join(each.name for each in BACKLOGS)}; default: all",
    )
    parser.add_argument(
        "--ways",
        type=lambda text: text.split(","),
        default=list(WAYS),
        metavar="WAY,...",
        help=f"how the connector reads backlogs, of {', '.join(WAYS)}; default: all",
    )
    parser.add_argument(
        "--columns",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="NAME,...",
        help="the columns of backlogs that are read, such as partitionKey,data; default: all",
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="REVISION",
        help="sparkinesis of another git revision, or in a folder, as one more competitor; may be "
        "repeated",
    )
    parser.add_argument(
        "--tls", action="store_true", help="over TLS, with a certificate made for the run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    found = parser.parse_args(words)
    backlogs = tuple(each.name for each in BACKLOGS)
    for name, known in (("only", PARTS), ("backlogs", backlogs), ("ways", WAYS)):
        unknown = [each for each in getattr(found, name) if each not in known]
        if unknown:
            parser.error(f"--{name}: no {', '.join(unknown)}; there are: {', '.join(known)}")
    return found


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number


def _fraction(text: str) -> float:
    if not 0 < (number := float(text)) <= 1:
        raise argparse.ArgumentTypeError("it must be above 0 and at most 1")
    return number


def connector(named: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    """The connector's jar: the named one, the environment's, or the one in the folder."""
    if named is not None:
        return named
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    jars = sorted(folder.glob("*.jar"))
    return jars[0] if len(jars) == 1 else None


def is_folder(revision: str) -> bool:
    return Path(revision).is_dir()


@contextmanager
def checked_out(revisions: Sequence[str]) -> Iterator[list[tuple[str, Path]]]:
    """The folders among the revisions, and work trees of the others for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="peers-spark-") as folder:
        there = [(Path(name).name, Path(name).resolve()) for name in revisions if is_folder(name)]
        names = [name for name in revisions if not is_folder(name)]
        trees = [(name, Path(folder) / str(number)) for number, name in enumerate(names)]
        git = ["git", "-C", str(ROOT), "worktree"]
        try:
            for name, at in trees:
                subprocess.run([*git, "add", "--quiet", "--detach", str(at), name], check=True)
            yield [*there, *trees]
        finally:
            for _, at in trees:
                subprocess.run([*git, "remove", "--force", str(at)], check=False)


def main(words: Sequence[str]) -> int:
    chosen = arguments(words)
    console = Console(width=None if sys.stdout.isatty() else 110)
    if not sys.platform.startswith("linux"):
        console.print("Nothing is measured: CPU seconds are read from Linux' /proc.")
        return 0
    jar = connector(chosen.connector, os.environ, FOLDER)
    if jar is None:
        console.print(
            "Nothing is measured: there is no jar of awslabs' spark-sql-kinesis-connector, which "
            "is not on Maven Central. Build it with Maven and a JDK as its README says, for the "
            f"Spark that PySpark has here, and name it: --connector JAR, or {VARIABLE}=JAR, or put "
            f"it into {FOLDER}."
        )
        return 0
    if not jar.is_file():
        console.print(f"There is no file {jar}.")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the query, too
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with checked_out(chosen.also) as trees, tls.over_tls() if chosen.tls else nullcontext():
        found = measure(chosen, jar.resolve(), trees, console)
        if chosen.json:
            write_json(found, chosen.json)
    console.print(f"Python {platform.python_version()}, {CORES} of {os.cpu_count()} cores, {jar}.")
    return 0


def measure(
    chosen: argparse.Namespace, jar: Path, trees: list[tuple[str, Path]], console: Console
) -> list[Result]:
    found: list[Result] = []
    with console.status("") as status:

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text)

        def add(title: str, more: list[Result]) -> None:
            print_table(title, more, console)
            found.extend(more)

        for part in chosen.only:
            if part == "backlog":
                for each in BACKLOGS:
                    if each.name in chosen.backlogs:
                        runs = backlog.measure(
                            of_backlog(jar, trees, chosen.ways),
                            each.scaled(chosen.scale),
                            chosen.columns,
                            chosen.rounds,
                            say,
                        )
                        title = ", ".join((each.title, *chosen.columns))
                        add(f"backlog, {title}", results(title, runs, OURS, BACKLOG_FIGURES))
            else:
                once, figures = LIVE[part]
                say(part)
                runs = alternating(by_default(jar, trees), chosen.rounds, once, say)
                add(part, results(part, runs, OURS, figures))
    return found
