"""A real Prometheus watches workers, a fleet and a query, while shards split and workers die."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sparkinesis.local import LocalServer
from tests import pace
from tests.prometheus.course import course
from tests.prometheus.journal import Journal, Totals
from tests.prometheus.on_spark import OnSpark
from tests.prometheus.server import Prometheus
from tests.prometheus.setting import (
    APPLICATION,
    RATE,
    ROOT,
    SHARDS,
    SLOW,
    SPARK_STREAM,
    STREAM,
    environment,
)
from tests.prometheus.verdict import Fate, wrong_counts, wrong_lag
from tests.repeating import repeating
from tests.streams import active_shards, merge_neighbours, put, split

LAGS = f'sparkinesis_lag_seconds{{application="{APPLICATION}"}}'
FIRING = {"SparkinesisFailuresRising"}
"""Processors fail on purpose. No other alert has a reason to fire."""
TICK = 0.1
STREAMS = (STREAM, SPARK_STREAM)
SLOW_LAG = 0.25
"""The least lag after a slow time, as a part of it: a third of the time would be half the rate."""


@dataclass
class Worker:
    name: str
    process: subprocess.Popen[bytes]
    port: int
    journal: Journal

    def let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(pace.seconds(60))
        assert code == 0, f"{self.name} ended with {code}"


class Producer:
    """Puts numbers at a steady rate, in a thread, until it is stopped."""

    def __init__(self, kinesis: Any) -> None:
        self.count = 0
        self._kinesis = kinesis
        self._running = ExitStack()
        self._running.enter_context(repeating(self._put, TICK))

    def stop(self) -> int:
        """Return how many have been put."""
        self._running.close()
        return self.count

    def _put(self) -> None:
        end = self.count + int(RATE * TICK)
        for stream in STREAMS:
            put(self._kinesis, stream, [b"%d" % n for n in range(self.count, end)])
        self.count = end


@dataclass
class Run:
    """One run. Its results are for whoever reports them."""

    seconds: float
    folder: Path
    note: Callable[[str], None]
    with_spark: bool = True
    fates: list[Fate] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._workers: list[Worker] = []
        self._ended: list[Worker] = []
        self._count = 0
        self._spark: OnSpark | None = None

    def play(self) -> None:
        """Raises AssertionError if something stands still."""
        with LocalServer(dynamodb=True) as server, Prometheus(self.folder / "prometheus") as seen:
            self._endpoint, self._prometheus = server.endpoint_url, seen
            self._kinesis = server.client("kinesis")
            for stream in STREAMS:
                self._kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
                self._kinesis.get_waiter("stream_exists").wait(StreamName=stream)
            try:
                self._play()
            finally:
                for worker in self._workers:
                    worker.process.kill()
                    worker.process.wait()
                if self._spark is not None:
                    self._spark.stop()

    def _play(self) -> None:
        self._start()
        self._start()
        if self.with_spark:
            self._spark = OnSpark(self._endpoint, self.folder, self._prometheus)
            self.note("starts a query and a fleet")
        producer = Producer(self._kinesis)
        try:
            began = time.time()
            for worker in self._workers:
                self._wait_until_processing(worker)
            if self._spark is not None:
                self._spark.wait_until_processing()
            self.note("Prometheus sees all of them process")
            start = time.monotonic()
            for moment, act in course(self.seconds):
                self._sleep_until(start + moment)
                getattr(self, f"_{act}")()
            self._sleep_until(start + self.seconds)
        finally:
            put_count = producer.stop()
        (self.folder / SLOW).unlink()
        self.note(f"the producer has stopped after {put_count:,} records")
        self._wait_until_drained(put_count)
        self._judge_lag(began)
        if self._spark is not None:
            fates, wrong = self._spark.judge(put_count)
            self.fates += fates
            self.wrong += wrong
            self.note("the query and the fleet have read everything")
        self._judge_rules()
        for worker in list(self._workers):
            self._end(worker)
        self.wrong += wrong_counts(self.fates)
        self.figures["records put"] = put_count
        self.figures["records processed, by processors"] = sum(
            fate.counted.records for fate in self.fates
        )
        self.figures["records processed, by Prometheus"] = sum(
            fate.told.records for fate in self.fates
        )

    # --- acts

    def _split(self) -> None:
        for stream in STREAMS:
            self.note(f"splits {split(self._kinesis, stream)} of {stream}")

    def _merge(self) -> None:
        for stream in STREAMS:
            merged = merge_neighbours(self._kinesis, stream)
            self.note(f"merges {' and '.join(merged)} of {stream}")

    def _kill_in_fleet(self) -> None:
        if self._spark is not None:
            self.note(f"has killed {self._spark.kill_worker()} of the fleet")

    def _slow(self) -> None:
        (self.folder / SLOW).touch()
        self.note("processors are slow from now on")

    def _kill(self) -> None:
        """``kill -9`` of the oldest worker, after Prometheus has seen it process."""
        worker = self._workers[0]
        self._wait_until_processing(worker)
        self._prometheus.wait_for_scrape(worker.port)
        scraped = self._told(worker.name)
        worker.process.kill()
        worker.process.wait()
        self._workers.remove(worker)
        self._ended.append(worker)
        self.note(f"has killed {worker.name}")
        self._start()
        pace.eventually(lambda: self._is_gone(worker))
        counted = worker.journal.read().totals
        self.fates.append(Fate(worker.name, counted, self._told(worker.name), scraped))

    def _end(self, worker: Worker | None = None) -> None:
        """End a worker gracefully; without one, the oldest, and start another."""
        ends = worker or self._workers[0]
        ends.process.terminate()
        pace.eventually(lambda: ends.journal.read().ended is not None)
        self._prometheus.wait_for_scrape(ends.port)
        gauges = self._prometheus.query(f'sparkinesis_leases_held{{worker="{ends.name}"}}')
        if gauges:
            self.wrong.append(f"{ends.name} has ended, and its gauges are told")
        told = self._told(ends.name)
        self._workers.remove(ends)
        self._ended.append(ends)
        ends.let_go()
        self.fates.append(Fate(ends.name, ends.journal.read().totals, told))
        self.note(f"{ends.name} has ended")
        if worker is None:
            self._start()

    def _start(self) -> None:
        self._count += 1
        name = f"w{self._count}"
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.prometheus.worker"),
                    *(self._endpoint, str(self.folder), name),
                ],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        port = int(_line(process.stdout))
        self._workers.append(Worker(name, process, port, Journal(self.folder / f"{name}.jsonl")))
        self._prometheus.scrape(port)
        self.note(f"starts {name}")

    # --- looks

    def _told(self, worker: str) -> Totals:
        return self._prometheus.totals(worker)

    def _wait_until_processing(self, worker: Worker) -> None:
        pace.eventually(lambda: self._told(worker.name).records > 0)

    def _is_gone(self, worker: Worker) -> bool:
        """True once Prometheus knows that the target is down, which ends its series."""
        up = self._prometheus.query(f'up{{instance="127.0.0.1:{worker.port}"}}', "instance")
        return list(up.values()) == [0.0]

    def _wait_until_drained(self, count: int) -> None:
        """Until all that was put is processed, and each open shard shows a lag of 0."""
        everyone = [*self._workers, *self._ended]
        shards = len(active_shards(self._kinesis, STREAM))

        left = ""

        def is_drained() -> bool:
            nonlocal left
            seen = set[int]().union(*(worker.journal.read().numbers for worker in everyone))
            lags = self._prometheus.query(LAGS, "shard", "worker")
            left = f"{len(seen)} of {count} records are processed; {shards} shards; lags: {lags}"
            return len(seen) == count and len(lags) == shards and not any(lags.values())

        began = time.monotonic()
        try:
            pace.eventually(is_drained)
        except AssertionError as error:
            raise AssertionError(left) from error
        self.figures["seconds from the producer's end to a lag of 0"] = round(
            time.monotonic() - began, 1
        )

    def _judge_lag(self, began: float) -> None:
        everyone = [*self._workers, *self._ended]
        furthest = max(worker.journal.read().furthest_behind for worker in everyone)
        told = self._prometheus.range(LAGS, began, time.time())
        least = (self.seconds - course(self.seconds)[-1][0]) * SLOW_LAG
        self.wrong += wrong_lag(told, furthest, least)
        self.figures["seconds that a batch was behind"] = round(furthest, 1)
        self.figures["the largest lag, by Prometheus"] = max(max(values) for values in told)

    def _judge_rules(self) -> None:
        for rule in self._prometheus.rules():
            if rule["health"] != "ok":
                self.wrong.append(f"{rule['name']} is not evaluated: {rule.get('lastError')}")
            if rule["state"] == "firing" and rule["name"] not in FIRING:
                self.wrong.append(f"{rule['name']} fires: {rule['alerts']}")

    @staticmethod
    def _sleep_until(moment: float) -> None:
        time.sleep(max(0.0, moment - time.monotonic()))


def _line(output: IO[bytes] | None) -> str:
    assert output is not None
    line = output.readline().decode().strip()
    assert line, "a worker did not start; its log tells why"
    return line
