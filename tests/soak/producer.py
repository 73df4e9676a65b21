"""Puts numbers for each key, in order, at a steady rate: ``... tests.soak.producer ENDPOINT FOLDER
RATE SEED``.

Every second key's go into KPL aggregates. ``produced.json`` tells how many numbers of each key are
stored, at least once each. SIGTERM: stores what it has begun, and ends.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from pathlib import Path

from sparkinesis.stream.address import stream_address
from sparkinesis.stream.kpl.pack import OutgoingRecord
from sparkinesis.stream.putting import Putter
from tests.soak.setting import KEYS, REGION, STREAM

TICK = 0.2
"""Seconds between two puts."""
AGGREGATE_SIZE = 4_096
PADDING = b":" + b"." * 80


def main(endpoint: str, folder: str, rate: float, seed: int) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    address = stream_address(STREAM, REGION, endpoint)
    numbers = {f"key-{n}": 0 for n in range(KEYS)}
    keys = list(numbers)
    rng = random.Random(seed)
    with (
        Putter(address, ordered=True) as plainly,
        Putter(address, ordered=True, aggregate_size=AGGREGATE_SIZE) as aggregating,
    ):
        while not stopping.is_set():
            began = time.monotonic()
            records: list[list[OutgoingRecord]] = [[], []]
            for key in rng.choices(keys, k=int(rate * TICK)):
                data = f"{key}:{numbers[key]}".encode() + PADDING
                records[keys.index(key) % 2].append((key, None, data))
                numbers[key] += 1
            plainly.put(records[0])
            aggregating.put(records[1])
            plainly.flush()
            aggregating.flush()
            tell(numbers, Path(folder))
            stopping.wait(max(0.0, began + TICK - time.monotonic()))


def tell(numbers: dict[str, int], folder: Path) -> None:
    new = folder / "produced.new"
    new.write_text(json.dumps(numbers))
    new.rename(folder / "produced.json")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
