"""Measures how Kinesis and DynamoDB answer what this library rests on: `make check-aws`.

Makes streams and a table whose names begin with a prefix, and removes them. States first what that
costs at most.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.local import LocalServer
from sparkinesis.stream.calls.explain import words
from tests.aws.answer import OTHERWISE, Answer, markdown
from tests.aws.bench import SECONDS, Bench, OutOfTimeError
from tests.aws.probes import PROBES

COST = """\
This makes two streams and a table, {prefix}-sparkinesis-check-*,
in AWS account {account}, {region}, and removes them.
It takes at most {minutes:g} minutes, and costs at most $0.11: seven shards for a begun hour each,
and thousands of records and rows, at the prices of us-east-1 in 2025, before taxes.
If this process is killed (kill -9), the streams cost up to $0.10 an hour until you delete them.
Type yes to go on: """


def main(given: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes, as Ctrl-C does
    if arguments.local:
        with LocalServer(dynamodb=True) as server:
            return check(Bench(arguments.stream_prefix, "us-east-1", server.endpoint_url, _note))
    bench = Bench(arguments.stream_prefix, arguments.region, None, _note)
    try:
        account, region = _account(bench)
    except (ClientError, BotoCoreError) as error:
        _note(
            f"Nothing was made: AWS cannot be called: {words(error)}. Give the region and "
            "credentials that boto3 finds: --region, AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        )
        return 2
    _note(
        COST.format(
            prefix=arguments.stream_prefix, account=account, region=region, minutes=SECONDS / 60
        )
    )
    if not arguments.yes and (not sys.stdin.isatty() or input().strip().lower() != "yes"):
        _note("Nothing was made: it was not agreed to (type yes, or give --yes).")
        return 2
    return check(bench)


def _account(bench: Bench) -> tuple[str, str]:
    """Return the account and the region, by STS, which is free."""
    sts = bench.client("sts")
    return sts.get_caller_identity()["Account"], sts.meta.region_name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make check-aws STREAM_PREFIX=...",
        description=__doc__,
        epilog="Exit codes: 0 all is as the code assumes; 1 something is not, or could not be "
        "measured or removed; 2 nothing was run; 130 interrupted.",
    )
    parser.add_argument("--stream-prefix", required=True, type=_prefix, help="of all names")
    parser.add_argument("--local", action="store_true", help="check the local server; is free")
    parser.add_argument("--region", help="default: boto3's")
    parser.add_argument("--yes", action="store_true", help="do not ask before money is spent")
    return parser


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,39}", text):
        raise argparse.ArgumentTypeError(
            "it has 1 to 40 letters, digits, '_' and '-', and begins with a letter or a digit"
        )
    return text


def check(bench: Bench) -> int:
    """Run all probes, print the report, and remove what was made; return the exit code."""
    answers: list[Answer] = []
    failed: list[str] = []
    code = 0
    try:
        failed += measure(bench, answers)
    except KeyboardInterrupt:
        code = 130
    finally:
        with _uninterrupted():
            _note("removing all that was made")
            left = bench.remove_all()
    print(f"# What was answered, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC\n")
    print(markdown(answers))
    for why in failed:
        _note(why)
    for name, why in left.items():
        _note(f"NOT REMOVED: {name}: {why}. It costs money until you delete it.")
    is_good = not failed and not left and all(one.verdict != OTHERWISE for one in answers)
    return code or (0 if is_good else 1)


def measure(bench: Bench, answers: list[Answer]) -> list[str]:
    """Have all probes add their answers; return which of them failed, and why.

    A probe that fails ends none of the others, and the time limit ends all.
    """
    try:
        stream = bench.create_stream("main", shards=2)
    except Exception as error:  # noqa: BLE001 - all is removed
        return [f"no stream could be made: {error}"]
    failed: list[str] = []
    for probe in PROBES:
        name = probe.__module__.rpartition(".")[2]
        bench.note(f"probe {name}")
        try:
            answers += probe(bench, stream)
        except OutOfTimeError as error:
            return [*failed, f"{error} in probe {name}"]
        except Exception as error:  # noqa: BLE001 - the others go on, and all is removed
            failed.append(f"probe {name} failed: {type(error).__name__}: {error}")
    return failed


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let no Ctrl-C end the removal: what is left would cost money."""

    def ignore(*_: object) -> None:
        _note("still removing; what is left costs money until it is removed")

    before = {one: signal.signal(one, ignore) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
