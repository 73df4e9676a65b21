"""The command line: `python -m examples.archive STREAM PATH`. Runs one worker; start several."""

from __future__ import annotations

import argparse
import logging
import sys

from examples.archive.archive import archive
from sparkinesis import SparkinesisError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.archive",
        description="Archives a stream of flights' events as Parquet files by day, until SIGTERM "
        "or Ctrl-C. Workers on any number of machines share the stream.",
    )
    parser.add_argument("stream", help="name of the stream")
    parser.add_argument("path", help="a directory, or a URI such as s3://bucket/flights")
    parser.add_argument("--region", help="the stream's region (default: the environment's)")
    parser.add_argument("--endpoint", help="Kinesis URL, if it is not AWS's")
    parser.add_argument(
        "--max-age", type=float, default=60.0, help="maximum age in seconds of rows in memory"
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        archive(
            given.stream, given.path, given.max_age, region=given.region, endpoint=given.endpoint
        ).run()
    except SparkinesisError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
