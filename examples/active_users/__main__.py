"""The command line: `make active-users`, or `python -m examples.active_users`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from examples.active_users.demo import REGION, Demo, DemoFailedError, Start
from examples.active_users.display import Display
from examples.active_users.users import STREAMS
from sparkinesis import SparkinesisError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEEP_STACKS = "-Xss16m"
"""When a query is stopped amid a batch, Spark matches a regular expression that needs a stack frame
for each character of a long error message. With Java's own stacks, that ends in a page of
StackOverflowError."""
SHORTEST_MINUTE = 0.5
"""Seconds. In a shorter minute, a shard cannot move to another worker."""


@contextlib.contextmanager
def processor(minute: float, _: Path) -> Iterator[Start]:
    from examples.active_users.processor import start_processor  # noqa: PLC0415

    yield functools.partial(start_processor, streams=STREAMS, region=REGION, minute=minute)


@contextlib.contextmanager
def query(minute: float, folder: Path) -> Iterator[Start]:
    from examples.active_users.query import start_query  # noqa: PLC0415 - needs PySpark

    with session() as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "1")  # there are few users
        start = functools.partial(start_query, spark, folder / "checkpoint")
        yield functools.partial(start, streams=STREAMS, region=REGION, minute=minute)


@contextlib.contextmanager
def fleet(minute: float, _: Path) -> Iterator[Start]:
    from examples.active_users.fleet import WORKERS, start_fleet  # noqa: PLC0415

    with session(f"local[{WORKERS}]") as spark:
        start = functools.partial(start_fleet, spark)
        yield functools.partial(start, streams=STREAMS, region=REGION, minute=minute)


@contextlib.contextmanager
def session(master: str = "local[2]") -> Iterator[SparkSession]:
    from examples.flights.processes import FOR_A_SHORT_LIFE  # noqa: PLC0415 - needs PySpark
    from examples.flights.query import start_spark  # noqa: PLC0415

    os.environ["JDK_JAVA_OPTIONS"] = f"{FOR_A_SHORT_LIFE} {DEEP_STACKS}"
    spark = start_spark(master)
    try:
        yield spark
    finally:
        spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.active_users",
        description="Shows the active users of two local streams of heartbeats, web and mobile. A "
        "record processor is stopped and started again, the streams are resharded, and the result "
        "is checked.",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--spark", action="store_true", help="use a Spark query instead")
    kinds.add_argument("--fleet", action="store_true", help="use a fleet of workers on Spark")
    parser.add_argument(
        "--minute", type=float, help="length of a minute in seconds (default: 1; with Spark: 2)"
    )
    parser.add_argument(
        "--short", action="store_true", help="leave out the merge and most old heartbeats"
    )
    arguments = parser.parse_args()
    is_on_spark = arguments.spark or arguments.fleet
    minute = arguments.minute if arguments.minute is not None else 1.0 + is_on_spark
    if minute < SHORTEST_MINUTE:
        parser.error(f"--minute is {minute:g}; it must be at least {SHORTEST_MINUTE:g} seconds.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM cleans up as Ctrl-C does
    os.environ.update(AWS_ACCESS_KEY_ID="demo", AWS_SECRET_ACCESS_KEY="demo")
    folder = Path(tempfile.mkdtemp(prefix="active-users-"))
    kind = query if arguments.spark else fleet if arguments.fleet else processor
    reason = ""
    try:
        display = Display()
        with kind(minute, folder) as start:
            demo = Demo(start, minute, display, short=arguments.short)
            with display:
                demo.run()
        demo.verify()
    except (DemoFailedError, RuntimeError, SparkinesisError) as error:
        reason = str(error)
    except KeyboardInterrupt:
        reason = "The demo was interrupted."
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{reason}\nactive users: FAILED" if reason else "active users: OK")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
