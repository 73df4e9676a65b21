"""Plans batches of an idle stream as Spark has them planned; tells the CPU seconds as JSON.

python -m benchmarks.peers.plan_side ENDPOINT PLANS
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql.types import StructType

from sparkinesis.source.datasource import KinesisDataSource

STREAM = "planned"


def main(endpoint: str, plans: int) -> None:
    options = {
        "streamName": STREAM,
        "region": "us-east-1",
        "endpoint": endpoint,
        "initialPosition": "latest",
        "minFetchPeriod": "0ms",
        "shardCallsPerSecond": "unlimited",
    }
    reader = KinesisDataSource(options).streamReader(StructType())
    at = _through_json(reader.initialOffset())
    taken = []
    for _ in range(1 + plans):
        cpu = time.process_time()
        at = _through_json(reader.latestOffset(at, reader.getDefaultReadLimit()))
        taken.append(time.process_time() - cpu)
    first, *rest = taken
    told = {"CPU of the first plan": first, "CPU of a plan": sum(rest) / len(rest)}
    print(json.dumps(told))


def _through_json(offset: Any) -> Any:
    """An offset goes from Spark's driver to its Python process and back."""
    return json.loads(json.dumps(offset))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
