"""What all processes of a run with Prometheus share."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
STREAM = "watched"
APPLICATION = "watched-app"
SPARK_STREAM = "watched-by-spark"
"""Gets the same records and reshards, for the readers on Spark."""
FLEET_APPLICATION = "watched-fleet"
FLEET = "fleet"
"""The folder of the journals of the fleet's workers."""
FLEET_WORKERS = 2
QUERY = "watched-query"
REGION = "us-east-1"
SHARDS = 3
SCRAPE_SECONDS = 1
BATCH = 20
"""Records that a worker fetches at once, so that a slow processor falls behind."""
SLOW_SECONDS = 0.8
"""Of each batch while the file `SLOW` is there: half of what is put is processed."""
RATE = 150
"""Records that are put each second."""
SLOW = "slow"


def environment() -> dict[str, str]:
    """The environment of a worker."""
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "prometheus",
        "AWS_SECRET_ACCESS_KEY": "prometheus",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
