"""Measures how Kinesis and DynamoDB answer what this library rests on: `make check-aws`.

Makes streams and a table whose names begin with a prefix, and removes them. States first what that
costs at most. The local server is measured too, and compared.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import OptionError
from sparkinesis.local import LocalServer
from sparkinesis.stream.address import check_place
from sparkinesis.stream.calls.explain import words
from tests.aws.findings import findings
from tests.aws.report import Report, as_json, cost, markdown, summary
from tests.aws.resources import Resource, Resources, common_name, is_abandoned
from tests.aws.run import PROBES, Outcome, Probe, run
from tests.aws.spending import MOST, Allowance, Prices, SpendingError, require_within, statement
from tests.aws.target import Target, TargetError

GOOD, OTHERWISE, NOT_RUN, INTERRUPTED = 0, 1, 2, 130
_LOCAL_SECONDS = 300.0
_PREFIX = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,39}")


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make check-aws STREAM_PREFIX=...",
        description=__doc__,
        epilog="Exit codes: 0 all is as the code assumes; 1 something is not, or could not be "
        "removed; 2 nothing was run; 130 interrupted.",
    )
    parser.add_argument("--stream-prefix", required=True, help="the start of all names")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="check the local server only; is free")
    where.add_argument("--endpoint", help="the URL of another server, for Kinesis and DynamoDB")
    parser.add_argument("--region", help="default: boto3's")
    parser.add_argument("--profile", help="a profile of ~/.aws; default: boto3's search")
    parser.add_argument("--minutes", type=float, default=20.0, help="time limit (default: 20)")
    parser.add_argument(
        "--max-cost", type=float, default=0.5, help="US dollars that the run may cost (0.5)"
    )
    parser.add_argument(
        "--shard-hour-price", type=float, default=Prices().shard_hour, help="US dollars (0.015)"
    )
    parser.add_argument(
        "--probe",
        action="append",
        choices=[probe.name for probe in PROBES],
        help="run only this probe; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before money is spent")
    parser.add_argument(
        "--clean-up", action="store_true", help="only remove what earlier runs have left"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the Markdown there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON there")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    arguments = _arguments(given)
    wrong = _wrong(arguments)
    if wrong is not None:
        return _refused(wrong)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes, as Ctrl-C does
    try:
        if arguments.local:
            with LocalServer() as server:
                target = Target("us-east-1", server.endpoint_url)
                return _check(arguments, target, "the local server", has_local=False)
        target = Target(arguments.region, arguments.endpoint, arguments.profile)
        return _check(arguments, target, str(target), has_local=True)
    except KeyboardInterrupt:
        print("Interrupted before anything was made.", file=sys.stderr)
        return INTERRUPTED
    except (TargetError, SpendingError) as error:
        return _refused(str(error))
    except (ClientError, BotoCoreError) as error:
        return _refused(words(error))


def _wrong(arguments: argparse.Namespace) -> str | None:
    """Return what is wrong with the arguments; None if nothing is."""
    if not _PREFIX.fullmatch(arguments.stream_prefix):
        return (
            f"STREAM_PREFIX is {arguments.stream_prefix!r}; it has 1 to 40 letters, digits, '_' "
            "and '-', and begins with a letter or a digit."
        )
    if not 1 <= arguments.minutes <= 240:
        return f"--minutes is {arguments.minutes:g}; it must be 1 to 240."
    if not 0 <= arguments.shard_hour_price < 10:
        return f"--shard-hour-price is {arguments.shard_hour_price:g}; it must be 0 to 10 dollars."
    for path in (arguments.report, arguments.json):
        if path is not None and not path.absolute().parent.is_dir():
            return f"There is no folder {path.absolute().parent} for {path}."
    try:
        check_place(arguments.region, arguments.endpoint)
    except OptionError as error:
        return str(error)
    return None


def _refused(why: str) -> int:
    print(f"Nothing was made: {why}", file=sys.stderr)
    return NOT_RUN


def _check(arguments: argparse.Namespace, target: Target, service: str, *, has_local: bool) -> int:
    prices = Prices(shard_hour=arguments.shard_hour_price)
    prefix, minutes = arguments.stream_prefix, arguments.minutes
    note = _notes()
    if not target.is_this_machine:
        require_within(minutes, arguments.max_cost, prices)
        account = target.account()
        service = f"{service} ({account})" if target.endpoint is None else service
        print(_announcement(prefix, account, minutes, prices, only_clean_up=arguments.clean_up))
        if not arguments.yes and not _is_agreed():
            return _refused("it was not agreed to (type yes, or give --yes).")
    if not _clean_up(target, prefix, note, whatever=arguments.clean_up):
        return OTHERWISE
    if arguments.clean_up:
        return GOOD
    probes = [probe for probe in PROBES if not arguments.probe or probe.name in arguments.probe]
    local = _measure_local(probes, note) if has_local else None
    if local is not None and local.was_interrupted:
        raise KeyboardInterrupt
    at = datetime.now(timezone.utc)
    outcome = run(target, prefix, seconds=60 * minutes, note=note, probes=probes)
    questions = [question for probe in probes for question in probe.questions]
    report = Report(
        service,
        at,
        outcome.seconds,
        findings(questions, outcome.answers, None if local is None else local.answers),
        outcome.used,
        cost(outcome.used, minutes, prices, is_free=target.is_this_machine),
        outcome.not_removed,
    )
    _tell(report, arguments)
    if outcome.was_interrupted:
        return INTERRUPTED
    return GOOD if report.is_good else OTHERWISE


def _announcement(
    prefix: str, account: str, minutes: float, prices: Prices, *, only_clean_up: bool
) -> str:
    names = f"{common_name(prefix)}*"
    if only_clean_up:
        return f"This removes the streams and tables {names} in {account} that carry its tag."
    until = datetime.now(timezone.utc) + timedelta(minutes=minutes)
    left = MOST.shards * prices.shard_hour
    lines = [
        f"This makes two streams and a table, {names}, in {account}, and removes them,",
        "and what an earlier run has left of them.",
        f"It ends by {until:%H:%M} UTC ({minutes:g} minutes), and costs at most:",
        *statement(minutes, prices),
        "The prices are assumed (those of us-east-1 in 2025, before taxes), not asked for.",
        f"If this process is killed (kill -9), the streams cost up to ${left:.2f} an hour until",
        "--clean-up removes them.",
    ]
    return "\n".join(lines)


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Type yes to go on: ").strip().lower() == "yes"


def _clean_up(target: Target, prefix: str, note: Callable[[str], None], *, whatever: bool) -> bool:
    """Remove what earlier runs have left; return False if something could not be removed.

    whatever: also what a run that may still go on has made.
    """
    now = datetime.now(timezone.utc)
    resources = Resources(target, prefix, now, Allowance())
    found = resources.leftovers()
    removed = [one.resource for one in found if whatever or is_abandoned(one, now)]
    for one in found:
        if one.resource not in removed:
            note(f"{one.resource} may belong to a run that goes on: left (--clean-up removes it)")
    if removed:
        note(f"removing what an earlier run has left: {', '.join(map(str, removed))}")
    elif whatever:
        note(f"nothing is left of {common_name(prefix)}*")
    left = resources.remove(removed)
    _warn(left)
    return not left


def _measure_local(probes: Sequence[Probe], note: Callable[[str], None]) -> Outcome:
    """Measure the local server, for the comparison; and to see that the probes work."""
    note("the local server is measured first")
    with LocalServer() as server:
        target = Target("us-east-1", server.endpoint_url)
        return run(
            target, "local", seconds=_LOCAL_SECONDS, note=lambda text: note(f"local: {text}"),
            probes=probes,
        )  # fmt: skip


def _tell(report: Report, arguments: argparse.Namespace) -> None:
    text = markdown(report)
    if arguments.report is not None:
        arguments.report.write_text(text, encoding="utf-8")
    if arguments.json is not None:
        arguments.json.write_text(as_json(report), encoding="utf-8")
    print(text)
    print(summary(report))
    _warn(report.not_removed)


def _warn(left: dict[Resource, str]) -> None:
    for resource, why in left.items():
        print(
            f"NOT REMOVED: {resource}: {why}. It costs money until it is removed: run again with "
            "ARGS=--clean-up, or delete it in the console.",
            file=sys.stderr,
        )


def _notes() -> Callable[[str], None]:
    """Return what prints a line of progress, with the seconds since now."""
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    return note


if __name__ == "__main__":
    sys.exit(main())
