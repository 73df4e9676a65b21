"""Receivers in processes of their own: killed at any instant, and ended by SIGTERM."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from tests.integration.queue.receiver_process import VISIBILITY
from tests.pace import Deadline, eventually

REGION = "eu-west-1"
CONCURRENCY = 32


class Receivers:
    """The processes that receive from one queue, and what they have written."""

    def __init__(self, server: LocalServer, folder: Path, records: int) -> None:
        self.kinesis: Any = server.client("kinesis", region=REGION)
        self.kinesis.create_stream(StreamName="s", StreamModeDetails={"StreamMode": "ON_DEMAND"})
        summary = self.kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
        start = {"StreamARN": summary["StreamARN"], "StartingPosition": {"Type": "TRIM_HORIZON"}}
        # Each of many kills may be a delivery of one record.
        attributes = {"DeadLetterConfiguration": {"TargetType": "NONE"}}
        made = self.kinesis.create_queue(
            QueueName="q", StreamConfigurationList=[start], QueueAttributes=attributes
        )
        self.arn: str = made["QueueDescription"]["QueueARN"]
        self.endpoint = server.endpoint_url
        self.file = folder / "handled"
        self.file.touch()
        self.running: list[subprocess.Popen[bytes]] = []
        self.killed: dict[int, float] = {}
        for first in range(0, records, 500):
            entries = [
                {"Data": b"%d" % number, "PartitionKey": f"k{number}"}
                for number in range(first, min(records, first + 500))
            ]
            assert (
                self.kinesis.put_records(StreamName="s", Records=entries)["FailedRecordCount"] == 0
            )

    def start(self, *processes: str) -> None:
        given = [self.endpoint, self.arn, str(self.file), str(CONCURRENCY), *processes]
        module = "tests.integration.queue.receiver_process"
        self.running.append(subprocess.Popen([sys.executable, "-m", module, *given]))

    def kill(self, index: int) -> None:
        process = self.running.pop(index)
        self.killed[process.pid] = time.monotonic()
        process.kill()
        process.wait()

    def handled(self) -> dict[int, list[tuple[int, float]]]:
        """Return who handled each record, and when."""
        found: dict[int, list[tuple[int, float]]] = defaultdict(list)
        whole, _, _ = self.file.read_text().rpartition("\n")  # the last one may be written now
        for line in whole.splitlines():
            pid, at, number = line.split()
            found[int(number)].append((int(pid), float(at)))
        return found

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(limits=None) as running:
        yield running


@pytest.mark.limit(300)
@pytest.mark.parametrize(
    ("records", "kills"),
    [
        pytest.param(8_000, 6, id="few"),
        pytest.param(50_000, 20, id="many", marks=pytest.mark.more),
    ],
)
def test_a_kill_loses_nothing_and_repeats_only_what_was_in_hand(
    server: LocalServer, tmp_path: Path, records: int, kills: int
) -> None:
    rng = random.Random(records)
    receivers = Receivers(server, tmp_path, records)
    try:
        for _ in range(4):
            receivers.start()
        eventually(lambda: receivers.file.stat().st_size > 0)
        for _ in range(kills):
            if len(receivers.handled()) == records:
                break
            time.sleep(rng.uniform(0.0, 0.3))  # a kill at any instant
            receivers.kill(rng.randrange(len(receivers.running)))
            receivers.start()
        deadline = Deadline(120.0)
        while len(handled := receivers.handled()) < records:
            assert not deadline.has_passed(), f"{records - len(handled)} are not handled"
            time.sleep(0.2)
    finally:
        receivers.end()
    repeated = {number: by for number, by in handled.items() if len(by) > 1}
    # Seconds from a call of the handler, for a record that came again, to the kill of its process.
    before = {
        number: [
            receivers.killed.get(pid, math.inf) - at
            for pid, at in sorted(by, key=lambda one: one[1])[:-1]
        ]
        for number, by in repeated.items()
    }
    # In hand: received less than a hold before the kill.
    others = {number for number, all_of in before.items() if max(all_of) > VISIBILITY + 1.0}
    longest = max((max(all_of) for all_of in before.values()), default=0.0)
    print(
        f"{len(handled):,} of {records:,} records handled, {len(receivers.killed)} kills; "
        f"{len(repeated) - len(others)} handled again of those in hand at a kill (at most "
        f"{longest:.2f} s before it), {len(others)} of others"
    )
    assert not others, {number: repeated[number] for number in others}


@pytest.mark.parametrize(
    "programs", [[[], []], [["2"]]], ids=["two programs", "one program of two processes"]
)
def test_sigterm_repeats_nothing(
    server: LocalServer, tmp_path: Path, programs: list[list[str]]
) -> None:
    records = 12_000
    receivers = Receivers(server, tmp_path, records)
    try:
        for processes in programs:
            receivers.start(*processes)
        eventually(lambda: len({pid for by in receivers.handled().values() for pid, _ in by}) == 2)
        for process in receivers.running:
            process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        codes = [process.wait(60) for process in receivers.running]
        took = time.monotonic() - began
        receivers.running.clear()
        before = receivers.handled()
        receivers.start()
        eventually(lambda: len(receivers.handled()) == records)
        eventually(lambda: in_flight(receivers) == 0)
    finally:
        receivers.end()
    print(f"ended after {took:.2f} s, with {len(before):,} of {records:,} handled")
    assert set(codes) == {0}
    assert all(len(by) == 1 for by in receivers.handled().values())


def in_flight(receivers: Receivers) -> int:
    """Return the records that another receiver gets once all are handled."""
    answer = receivers.kinesis.receive_queue_records(QueueARN=receivers.arn, WaitTimeSeconds=1)
    return len(answer["QueueRecords"])
