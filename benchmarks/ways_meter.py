"""Measures what a consumer does a second, from within its process, and ends the process."""

from __future__ import annotations

import json
import os
import threading
import time

WARM_UP = 0.5
"""The wait from the first batch until the measurement begins, as a part of its duration."""


class Meter:
    """Tells, as JSON, the records, the batches and the CPU seconds of some seconds."""

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
        before = self._sample()
        time.sleep(seconds)
        names = ("records", "batches", "seconds", "cpu")
        change = (now - then for now, then in zip(self._sample(), before, strict=True))
        print(json.dumps(dict(zip(names, change, strict=True))), flush=True)
        os._exit(0)  # a graceful end waits for the batch at hand

    def _sample(self) -> tuple[float, ...]:
        seconds, cpu = time.monotonic(), time.process_time()
        done = self._done[:]
        return sum(done), len(done), seconds, cpu
