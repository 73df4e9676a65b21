"""Runs everything real for some minutes: ``python -m tests.soak --minutes 20 --seed 1``.

A local Kinesis with its limits and with bad weather; a producer; two Spark drivers with a query
each, one of which is killed again and again, and the other hosts a fleet as well; three workers in
processes of their own. Shards split and merge, processes are killed, stopped and shut down. In the
end everything that was put must have come out, and nothing may have grown. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.footprint import is_known_here, marked
from tests.soak.report import Report
from tests.soak.setting import MARK
from tests.soak.soak import Plan, Soak, SoakError
from tests.soak.stored import read_all
from tests.soak.verdict import (
    Verdict,
    judge_growth,
    judge_processors,
    judge_queries,
    judge_stream,
)

SHORTEST = 2.0
DRAIN_SECONDS = 120.0


def soak(plan: Plan, folder: Path, report: Report) -> Verdict:
    """Runs one soak and returns its verdict."""
    verdict = Verdict()
    run = Soak(plan, folder, lambda text: report.note(run.seconds, text), report.minute)
    try:
        _run(run, verdict, report)
    except SoakError as error:
        verdict.wrong.append(f"everything keeps working: {error}")
    finally:
        run.company.close()
    verdict.figures["what happened"] = dict(run.acts)
    verdict.check("processes end well", run.company.ended)
    left = [f"{pid}: {command}" for pid, command in marked(MARK, run.mark).items()]
    verdict.check("no process is left", left)
    return verdict


def _run(run: Soak, verdict: Verdict, report: Report) -> None:
    """Raises `SoakError` when a process stands still or ends by itself."""
    run.start()
    report.note(run.seconds, "all processes work")
    run.calm()
    run.storm()
    report.note(run.seconds, "the storm is over")
    run.settle()
    report.note(run.seconds, "all processes work")
    run.calm()
    report.minute(run)
    report.comparison(run.watch)
    put = run.end_producer()
    stored = read_all(run.kinesis)
    judge_stream(verdict, stored, put)
    taken = run.drain(len(stored.rows), len(stored.copies), DRAIN_SECONDS)
    if taken is None:
        verdict.check("everything is processed", [f"not within {DRAIN_SECONDS:g} s"])
    else:
        verdict.figures["seconds until everything was processed"] = round(taken, 1)
    run.end_clients()
    owned = run.owners()
    verdict.check("leases are released", [f"{s} is {owner}'s" for s, owner in owned.items()])
    verdict.check("no connection is left", run.connections_left())
    run.end_server()
    judge_queries(verdict, run.watch, stored)
    judge_processors(verdict, run.watch, run.company.fates, stored.copies)
    judge_growth(verdict, run.watch)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20.0, help="duration; default: 20")
    parser.add_argument(
        "--seed", type=int, default=None, help="default: drawn at random, and printed"
    )
    parser.add_argument(
        "--rate", type=float, default=300.0, help="user records a second; default: 300"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="for logs and output; default: a temporary one, deleted if all checks hold",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    args = parser.parse_args()
    if args.minutes < SHORTEST:
        parser.error(f"a soak takes at least {SHORTEST:g} minutes")
    if not is_known_here():
        parser.error("this system has no /proc, from which the soak reads processes' resources")
    seed = random.randrange(2**32) if args.seed is None else args.seed
    report = Report(args.json)
    plan = Plan(args.minutes * 60, seed, args.rate)
    report.note(0, f"{args.minutes:g} minutes, {args.rate:g} user records a second, seed {seed}")
    folder = args.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    report.note(0, f"logs and output are in {folder}")
    verdict = soak(plan, folder, report)
    report.verdict(verdict)
    if verdict.wrong:
        return 1
    if args.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
