"""Measures what a consumer does a second, from within its process, and ends the process."""

from __future__ import annotations

import json
import os
import threading
import time

WARM_UP = 0.5
"""The wait from the first batch until the measurement begins, as a part of its duration."""


class Meter:
    """Tells, as JSON, the records, batches and CPU seconds of so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._done: list[int] = []
        self._first = threading.Event()
        threading.Thread(target=self._measure, args=(seconds,), daemon=True).start()

    def add(self, records: int = 1) -> None:
        """Count a batch that is done, from any thread."""
        self._done.append(records)
        self._first.set()

    def _measure(self, seconds: float) -> None:
        self._first.wait()
        time.sleep(WARM_UP * seconds)
        before = now = self._sample()
        while now[1] == before[1]:  # a busy machine may take longer for one batch
            time.sleep(seconds)
            now = self._sample()
        names = ("records", "batches", "seconds", "cpu")
        change = (after - then for after, then in zip(now, before, strict=True))
        print(json.dumps(dict(zip(names, change, strict=True))), flush=True)
        os._exit(0)  # a graceful end waits for the batch at hand

    def _sample(self) -> tuple[float, ...]:
        seconds, cpu = time.monotonic(), time.process_time()
        done = self._done[:]
        return sum(done), len(done), seconds, cpu
