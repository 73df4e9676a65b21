"""Receivers in processes of their own, which SIGTERM ends amid their work."""

from __future__ import annotations

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
from tests.pace import eventually
from tests.streams import create_queue, put_all

REGION = "eu-west-1"


class Receivers:
    """The processes that receive from one queue, and what they have written."""

    def __init__(self, server: LocalServer, folder: Path) -> None:
        self.kinesis: Any = server.client("kinesis", region=REGION)
        self.arn = create_queue(self.kinesis, "s", "q")
        self.endpoint = server.endpoint_url
        self.file = folder / "handled"
        self.file.touch()
        self.running: list[subprocess.Popen[bytes]] = []
        self.records = 0

    def put(self, count: int) -> None:
        numbers = range(self.records, self.records + count)
        put_all(self.kinesis, "s", [{"Data": b"%d" % n, "PartitionKey": f"k{n}"} for n in numbers])
        self.records += count

    def start(self, *processes: str) -> None:
        given = [self.endpoint, self.arn, str(self.file), *processes]
        module = "tests.integration.queue.receiver_process"
        self.running.append(subprocess.Popen([sys.executable, "-m", module, *given]))

    def handled(self) -> dict[int, list[int]]:
        """Return which processes handled each record."""
        found: dict[int, list[int]] = defaultdict(list)
        whole, _, _ = self.file.read_text().rpartition("\n")  # the last one may be written now
        for line in whole.splitlines():
            pid, number = line.split()
            found[int(number)].append(int(pid))
        return found

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[Receivers]:
    with LocalServer(limits=None) as server:
        made = Receivers(server, tmp_path)
        yield made
        made.end()


@pytest.mark.parametrize(
    "programs", [[[], []], [["2"]]], ids=["two programs", "one program of two processes"]
)
def test_sigterm_repeats_nothing(receivers: Receivers, programs: list[list[str]]) -> None:
    for processes in programs:
        receivers.start(*processes)

    def are_both_at_work() -> bool:
        receivers.put(20)
        return len({pid for by in receivers.handled().values() for pid in by}) == 2

    eventually(are_both_at_work)
    receivers.put(2_000)
    for process in receivers.running:
        process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    codes = [process.wait(60) for process in receivers.running]
    took = time.monotonic() - began
    receivers.running.clear()
    before = receivers.handled()
    receivers.start()
    eventually(lambda: len(receivers.handled()) == receivers.records)
    eventually(lambda: in_flight(receivers) == 0)
    print(f"ended after {took:.2f} s, with {len(before):,} of {receivers.records:,} handled")
    assert set(codes) == {0}
    assert all(len(by) == 1 for by in receivers.handled().values())


def in_flight(receivers: Receivers) -> int:
    """Return the records that another receiver gets once all are handled."""
    answer = receivers.kinesis.receive_queue_records(QueueARN=receivers.arn, WaitTimeSeconds=1)
    return len(answer["QueueRecords"])
