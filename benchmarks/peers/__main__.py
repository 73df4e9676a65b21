"""Measures sparkinesis beside its peers: see docs/peers.md.

python -m benchmarks.peers --only backlog --peers kcl-rs,boto3 --rounds 5 --json build/peers.json
python -m benchmarks.peers spark --only idle,reshard    # the Spark source beside awslabs' connector
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import tls
from benchmarks.peers import backlog, costs, page, plots, start, steady
from benchmarks.peers.arguments import Arguments, parsed
from benchmarks.peers.competitors import SPARKINESIS, Competitor, unusable
from benchmarks.peers.environments import LeftOutError, installed, versions
from benchmarks.peers.figures import Sample, figures
from benchmarks.peers.report import Report, joined, machine, print_report
from benchmarks.peers.spark import command as spark

Measure = Callable[[Mapping[Competitor, Path], int, float, Callable[[str], None]], Iterator[Sample]]
MEASURES: dict[str, Measure] = {
    "start": start.measure,
    "steady": steady.measure,
    "costs": costs.measure,
}


def run(arguments: Arguments, report: Report, console: Console) -> None:
    """Measure, and put into the report what was found."""
    with console.status("") as status:
        said = [""]

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal and text != said[-1]:
                console.print(text)
            said.append(text)

        pythons: dict[Competitor, Path] = {}
        for each in (SPARKINESIS, *arguments.peers):
            say(f"Installing {each.name} into build/peers ...")
            try:
                reason = unusable(each, sys.version_info[:2])
                if reason is not None:
                    raise LeftOutError(reason)
                pythons[each] = installed(each)
            except LeftOutError as error:
                report.left_out.append(str(error))
            else:
                report.versions[each.name] = versions(each, pythons[each])
        samples: list[Sample] = []
        # The libraries are installed by now: pip has other certificates to trust.
        with tls.over_tls() if arguments.tls else contextlib.nullcontext():
            for case in arguments.cases:
                for sample in measured(case, pythons, arguments, say):
                    samples.append(sample)
                    found = figures(samples, backlog.AGAINST)
                    # The tables say which of both they are of.
                    report.figures = [replace(each, case=each.case + tls.note()) for each in found]


def measured(
    case: str,
    pythons: Mapping[Competitor, Path],
    arguments: Arguments,
    say: Callable[[str], None],
) -> Iterator[Sample]:
    """Measure a case of the command line."""
    if case == "backlog":
        return backlog.measure(pythons, arguments.rounds, arguments.scale, say, arguments.stocks)
    return MEASURES[case](pythons, arguments.rounds, arguments.scale, say)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["spark"]:
        return spark.main(arguments[1:])
    console = Console(width=None if sys.stdout.isatty() else 110)
    wanted = parsed(arguments)
    if not Path("/proc/self/stat").exists():
        console.print(
            "The CPU and the memory of a consumer's processes are read from /proc: Linux."
        )
        return 2
    if wanted.drawn:
        report = joined([Report.read(path) for path in wanted.drawn])
    else:
        command = shlex.join(["python", "-m", "benchmarks.peers", *arguments])
        report = Report(command, machine(), wanted.rounds)
        # The consumers are sessions of their own, which end with the blocks that started them.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        try:
            run(wanted, report, console)
        finally:
            report.write(wanted.json)
    print_report(report, console)
    if wanted.plots is not None:
        for path in plots.write(report, wanted.plots):
            console.print(f"Drawn: {path}")
    if wanted.page is not None:
        page.write(report, wanted.page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
