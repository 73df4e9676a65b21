"""Lets a real Prometheus watch workers, a fleet and a query.

``python -m tests.prometheus --minutes 5``.

Prometheus scrapes each of them every second, while shards split and merge, a worker is killed and
others end gracefully. By its query API, the records, bytes and calls of each worker must be what
its record processors counted, and the lag must follow. Exit code 1 otherwise.

Needs Debian's package ``prometheus``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.prometheus.run import Run
from tests.prometheus.server import is_installed

SHORTEST = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prometheus")
    parser.add_argument(
        "--minutes", type=float, default=SHORTEST, help="of the producer; default: half a minute"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="for logs and data; default: a temporary one, deleted if all checks hold",
    )
    parser.add_argument(
        "--without-spark", action="store_true", help="leave out the fleet and the query"
    )
    args = parser.parse_args()
    if not is_installed():
        print("LEFT OUT: prometheus is not installed; Debian's package is prometheus.")
        return 0
    if args.minutes < SHORTEST:
        parser.error(f"a run takes at least {SHORTEST:g} minutes")
    folder = args.folder or Path(tempfile.mkdtemp(prefix="prometheus-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    run = Run(
        args.minutes * 60,
        folder,
        lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True),
        with_spark=not args.without_spark,
    )
    run.note(f"logs and data are in {folder}")
    run.play()
    for fate in run.fates:
        end = "ended" if fate.scraped is None else f"killed, after {fate.scraped.records:,.0f}"
        counted, told = fate.counted.records, fate.told.records
        print(f"{fate.worker} ({end}): {counted:,.0f} records counted, {told:,.0f} by Prometheus")
    for name, figure in run.figures.items():
        print(f"{name}: {figure:,}")
    for text in run.wrong:
        print(f"WRONG: {text}")
    if run.wrong:
        return 1
    if args.folder is None:
        shutil.rmtree(folder)
    print("Prometheus says what was counted.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
