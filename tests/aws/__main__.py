"""Measures how Kinesis and DynamoDB answer what this library rests on: `make check-aws`.

Makes streams and a table whose names begin with a prefix, and removes them. States first what that
costs at most.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import OptionError
from sparkinesis.local import LocalServer
from sparkinesis.stream.address import check_place
from sparkinesis.stream.calls.explain import words
from tests.aws.findings import findings
from tests.aws.report import Report, markdown, summary
from tests.aws.resources import Resource, Resources, common_name
from tests.aws.run import PROBES, run
from tests.aws.spending import MOST, SHARD_HOUR, Allowance, dollars
from tests.aws.target import Target, TargetError

GOOD, OTHERWISE, NOT_RUN, INTERRUPTED = 0, 1, 2, 130
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
    where.add_argument("--local", action="store_true", help="check the local server; is free")
    where.add_argument("--endpoint", help="the URL of another server, for Kinesis and DynamoDB")
    parser.add_argument("--region", help="default: boto3's")
    parser.add_argument("--minutes", type=float, default=20.0, help="time limit (default: 20)")
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
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    arguments = _arguments(given)
    wrong = _wrong(arguments)
    if wrong is not None:
        return _refused(wrong)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes, as Ctrl-C does
    try:
        if not arguments.local:
            return _check(arguments, Target(arguments.region, arguments.endpoint))
        with LocalServer() as server:
            return _check(arguments, Target("us-east-1", server.endpoint_url))
    except KeyboardInterrupt:
        print("Interrupted before anything was made.", file=sys.stderr)
        return INTERRUPTED
    except TargetError as error:
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
    try:
        check_place(arguments.region, arguments.endpoint)
    except OptionError as error:
        return str(error)
    return None


def _refused(why: str) -> int:
    print(f"Nothing was made: {why}", file=sys.stderr)
    return NOT_RUN


def _check(arguments: argparse.Namespace, target: Target) -> int:
    prefix, minutes = arguments.stream_prefix, arguments.minutes
    service = target.account()
    if not target.is_this_machine:
        print(
            f"This removes the streams and tables {common_name(prefix)}* of {service} that carry "
            "its tag."
            if arguments.clean_up
            else _announcement(prefix, service, minutes),
            file=sys.stderr,
        )
        if not arguments.yes and not _is_agreed():
            return _refused("it was not agreed to (type yes, or give --yes).")
    note = _notes()
    resources = Resources(target, prefix, Allowance())
    leftovers = resources.leftovers()
    if arguments.clean_up:
        note(f"removing {', '.join(map(str, leftovers)) or 'nothing: nothing is left'}")
        left = resources.remove(leftovers)
        _warn(left)
        return OTHERWISE if left else GOOD
    for one in leftovers:
        note(f"{one} is of another run: left (--clean-up removes it)")
    probes = [probe for probe in PROBES if not arguments.probe or probe.name in arguments.probe]
    at = datetime.now(timezone.utc)
    outcome = run(target, prefix, seconds=60 * minutes, note=note, probes=probes)
    questions = [question for probe in probes for question in probe.questions]
    cost = 0.0 if target.is_this_machine else dollars(outcome.used, minutes)
    found = findings(questions, outcome.answers)
    report = Report(service, at, outcome.seconds, found, outcome.used, cost, outcome.not_removed)
    print(markdown(report))
    print(summary(report))
    _warn(report.not_removed)
    if outcome.was_interrupted:
        return INTERRUPTED
    return GOOD if report.is_good else OTHERWISE


def _announcement(prefix: str, service: str, minutes: float) -> str:
    until = datetime.now(timezone.utc) + timedelta(minutes=minutes)
    return (
        f"This makes two streams and a table, {common_name(prefix)}*,\nin {service}, and removes "
        f"them.\nIt ends by {until:%H:%M} UTC ({minutes:g} minutes), and costs at most "
        f"${dollars(MOST, minutes):.2f}:\n{MOST.shards} shards, {MOST.puts:,} records, "
        f"{MOST.writes:,} writes and {MOST.reads:,} reads of DynamoDB,\nat the prices of us-east-1 "
        f"in 2025, before taxes.\nIf this process is killed (kill -9), the streams cost up to "
        f"${MOST.shards * SHARD_HOUR:.2f} an hour until\n--clean-up removes them."
    )


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Type yes to go on: ").strip().lower() == "yes"


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
