"""The local server in a process of its own, with weather: ``... tests.soak.server SEED``.

Its first line is its endpoint. SIGUSR1 begins bad weather, SIGUSR2 ends it, SIGTERM ends all.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, CallLog, Fault
from tests.soak.setting import REGION, SHARDS, STREAM
from tests.soak.weather import fault_of

CALLS_KEPT = 1_000
"""Its log of calls would fill for an hour before it stops to grow."""


def main(seed: int) -> None:
    stopping = threading.Event()
    began: list[float] = []

    def weather(call: Call) -> Fault | None:
        since = began[-1:]
        return fault_of(call, time.monotonic() - since[0], seed) if since else None

    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGUSR1, lambda *_: began.append(time.monotonic()))
    signal.signal(signal.SIGUSR2, lambda *_: began.clear())
    with LocalServer(faults=weather, dynamodb=True) as server:
        server.kinesis.calls = CallLog(CALLS_KEPT)
        server.kinesis.call("CreateStream", region=REGION, StreamName=STREAM, ShardCount=SHARDS)
        print(server.endpoint_url, flush=True)
        stopping.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))
