"""Receivers of a queue, beside the simplest loop over boto3: records and CPU by concurrency.

The local Kinesis has a process of its own, and each side, in turn, another one. Handlers do
nothing. The CPU is the side's own, from its first record to its last acknowledgement.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.filled_server import filled_server
from benchmarks.queues_side import REGION, SIDES
from benchmarks.report import Result
from sparkinesis.local import ManualClock

RECORDS = {1: 2_000, 32: 10_000, 256: 10_000}
SIZE = 200
ROUNDS = 3
IDLE_SECONDS = 20
REQUIRED = 3.0
"""At a concurrency of 32: how many times fewer CPU seconds for each record."""


def fill(kinesis: Any, clock: ManualClock) -> None:
    del clock
    kinesis.create_stream(StreamName="records", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    most = max(RECORDS.values())
    for first in range(0, most, 500):
        entries = [
            {"Data": bytes(SIZE), "PartitionKey": f"{number}"}
            for number in range(first, min(most, first + 500))
        ]
        kinesis.put_records(StreamName="records", Records=entries)


def run() -> list[Result]:
    import boto3  # noqa: PLC0415 - imports for 0.3 s

    os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")

    results: list[Result] = []
    with filled_server(fill, is_timed=True) as endpoint:
        kinesis = boto3.client("kinesis", region_name=REGION, endpoint_url=endpoint)
        summary = kinesis.describe_stream_summary(StreamName="records")
        stream = summary["StreamDescriptionSummary"]["StreamARN"]
        for concurrency, records in RECORDS.items():
            told: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            for number in range(ROUNDS):
                for side in SIDES if number % 2 else reversed(SIDES):
                    arn = _queue(kinesis, stream, "TRIM_HORIZON")
                    told[side].append(_side(endpoint, arn, side, concurrency, records))
                    kinesis.delete_queue(QueueARN=arn)
            results += _results(concurrency, records, told)
        arn = _queue(kinesis, stream, "LATEST")
        idle = _side(endpoint, arn, "ours", IDLE_SECONDS, 0)["cpu"] * 60 / IDLE_SECONDS
        results.append(Result("an idle minute", idle, "CPU s"))
    return results


def _queue(kinesis: Any, stream: str, start: str) -> str:
    made = kinesis.create_queue(
        QueueName="measured",
        StreamConfigurationList=[{"StreamARN": stream, "StartingPosition": {"Type": start}}],
    )
    return str(made["QueueDescription"]["QueueARN"])


def _side(endpoint: str, arn: str, side: str, concurrency: int, records: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.queues_side", endpoint, arn, side]
    output = subprocess.run(
        [*command, str(concurrency), str(records)], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def _results(
    concurrency: int, records: int, told: dict[str, list[dict[str, float]]]
) -> list[Result]:
    cpu = {side: statistics.median(one["cpu"] for one in found) for side, found in told.items()}
    found = []
    for side in SIDES:
        rate = records / statistics.median(one["seconds"] for one in told[side])
        ratio = None if side == "boto3" else cpu["boto3"] / cpu[side]
        found.append(
            Result(
                f"{side}, {concurrency} at a time",
                cpu[side] / records * 1e6,
                "CPU us a record",
                ratio,
                REQUIRED if concurrency == 32 and side == "ours" else None,
                f"{rate:,.0f} records/s",
            )
        )
    return found
