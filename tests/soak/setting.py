"""The settings that all processes of a soak share."""

from __future__ import annotations

import os
from pathlib import Path

STREAM = "soak"
APPLICATION = "soak"
REGION = "us-east-1"
FLEET_WORKERS = 2
SHARDS = 6
"""Open shards in calm times."""
FEWEST_SHARDS = 2
MOST_SHARDS = 12
FAILOVER_TIME = 6.0
PAUSE = 2.5 * FAILOVER_TIME
"""Seconds that a worker is stopped: long enough to lose all its leases."""
KEYS = 96
MARK = "SPARKINESIS_SOAK"
"""An environment variable of every process of a soak, by which leftover processes are found."""

ROOT = Path(__file__).parents[2]


def environment(mark: str, scratch: Path) -> dict[str, str]:
    """The environment of a child; the files that a killed child leaves go to ``scratch``."""
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "soak",
        "AWS_SECRET_ACCESS_KEY": "soak",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "TMPDIR": str(scratch),
        MARK: mark,
    }
