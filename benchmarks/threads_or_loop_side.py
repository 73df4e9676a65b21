"""One side of the sketch: reads the shards of a stream once a second each; tells its cost as JSON.

python -m benchmarks.threads_or_loop_side threads|loop PORT SHARDS SECONDS

Both sides build and sign the same requests, keep connections, and parse answers by httptools and
msgspec. What differs is who waits: threads that block, or an event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import hmac
import json
import resource
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httptools
import msgspec

STREAM = "idle"
PERIOD = 1.0
"""Seconds between two reads of a shard."""
WARM_UP = 2.0
"""Seconds before the measurement: connections and threads are made then."""
MOST = 60
"""Threads, or connections of the loop."""
HOST = "127.0.0.1"
_CHUNK = 65_536


class Page(msgspec.Struct, rename="pascal"):
    records: list[Any]
    next_shard_iterator: str


class Signer:
    """Builds signed requests (signature version 4); keeps the key of the day."""

    def __init__(self, port: int) -> None:
        self._host = f"{HOST}:{port}"
        self._second = 0
        self._date = ""
        self._key = b""

    def request(self, operation: str, body: bytes) -> bytes:
        target = f"Kinesis_20131202.{operation}"
        date = self._now()
        canonical = (
            f"POST\n/\n\ncontent-type:application/x-amz-json-1.1\nhost:{self._host}\n"
            f"x-amz-date:{date}\nx-amz-target:{target}\n\n"
            f"content-type;host;x-amz-date;x-amz-target\n{hashlib.sha256(body).hexdigest()}"
        )
        scope = f"{date[:8]}/us-east-1/kinesis/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}"
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nX-Amz-Target: {target}\r\n"
            f"Content-Type: application/x-amz-json-1.1\r\nX-Amz-Date: {date}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential=local/{scope}, "
            "SignedHeaders=content-type;host;x-amz-date;x-amz-target, "
            f"Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _now(self) -> str:
        second = int(time.time())
        if second != self._second:
            date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            if date[:8] != self._date[:8]:
                key = b"AWS4local"
                for part in (date[:8], "us-east-1", "kinesis", "aws4_request"):
                    key = hmac.digest(key, part.encode(), "sha256")
                self._key = key
            self._second, self._date = second, date
        return self._date


class Answer:
    """Takes what httptools finds in one answer."""

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.is_complete = False
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True

    def page(self) -> Page:
        assert self.parser.get_status_code() == 200, self.body
        return _decode(b"".join(self.body))


_decode = msgspec.json.Decoder(Page).decode


class Blocking:
    """A kept connection whose calls block."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: bytes) -> Answer:
        self._socket.sendall(request)
        answer = Answer()
        while not answer.is_complete:
            data = self._socket.recv(_CHUNK)
            assert data, "the server closed the connection"
            answer.parser.feed_data(data)
        return answer


class Asynchronous(asyncio.Protocol):
    """A kept connection whose calls are awaited."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._answer.parser.feed_data(data)
        if self._answer.is_complete and not self._done.done():
            self._done.set_result(self._answer)

    async def call(self, request: bytes) -> Answer:
        self._answer = Answer()
        self._done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.transport.abort()
            raise


class Cost:
    """What the process has used, and how late its calls began, from ``begin`` on."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.connections = 0

    def begin(self) -> None:
        self.late.clear()
        self._began, self._cpu, self._switches = time.monotonic(), *_used()

    def tell(self) -> None:
        cpu, switches = _used()
        late = sorted(self.late)
        calls = len(late)
        status = Path("/proc/self/status").read_text()
        told = {
            "calls_per_second": calls / (time.monotonic() - self._began),
            "cpu_ms_per_call": 1000 * (cpu - self._cpu) / calls,
            "switches_per_call": (switches - self._switches) / calls,
            "threads": int(status.partition("Threads:")[2].split()[0]),
            "rss_mb": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
            "connections": self.connections,
            "late_ms_99": 1000 * late[calls * 99 // 100],
        }
        print(json.dumps(told), flush=True)


def _used() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_nvcsw + used.ru_nivcsw


def body_of(iterator: str) -> bytes:
    return msgspec.json.encode({"ShardIterator": iterator, "Limit": 10_000})


class Threads:
    """Threads that take whichever shard is due.

    One of the idle threads, the leader, waits for the shard that is due next. When it goes to read
    the shard, the thread that was idle last becomes the leader: its stack is in the caches, and the
    other threads sleep on. A thread is made if there is none idle.
    """

    def __init__(self, signer: Signer, port: int, iterators: list[str], cost: Cost) -> None:
        self._signer = signer
        self._port = port
        self._iterators = iterators
        self._cost = cost
        self._lock = threading.Lock()
        now = time.monotonic()
        self._due = [(now + PERIOD * i / len(iterators), i) for i in range(len(iterators))]
        self._idle: list[threading.Lock] = []
        self._leader: threading.Lock | None = None
        self._count = 0
        self._connections: list[Blocking] = []
        self._add()

    def _add(self) -> None:
        self._count += 1
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        woken = threading.Lock()
        woken.acquire()
        lock, due = self._lock, self._due
        lock.acquire()
        while True:
            wait = due[0][0] - time.monotonic() if due else -1
            if due and wait <= 0:
                at, shard = heapq.heappop(due)
                if self._leader is woken:
                    self._leader = None
                self._find_leader()
                lock.release()
                self._read(shard, at)
                lock.acquire()
                heapq.heappush(due, (at + PERIOD, shard))
                if due[0][1] == shard and self._leader is not None:
                    self._leader.release()  # it waits for a later one
                    self._leader = None
            elif self._leader is None or self._leader is woken:
                self._leader = woken
                lock.release()
                woken.acquire(timeout=wait)
                lock.acquire()
                if self._leader is woken:
                    self._leader = None
            else:
                self._idle.append(woken)
                lock.release()
                woken.acquire()
                lock.acquire()

    def _find_leader(self) -> None:
        if self._leader is None:
            if self._idle:
                self._leader = self._idle.pop()
                self._leader.release()
            elif self._count < MOST:
                self._add()

    def _read(self, shard: int, at: float) -> None:
        self._cost.late.append(time.monotonic() - at)
        request = self._signer.request("GetRecords", body_of(self._iterators[shard]))
        try:
            connection = self._connections.pop()
        except IndexError:
            connection = Blocking(self._port)
            self._cost.connections += 1
        self._iterators[shard] = connection.call(request).page().next_shard_iterator
        self._connections.append(connection)


async def loop(signer: Signer, port: int, iterators: list[str], cost: Cost, seconds: float) -> None:
    """Read by a coroutine for each shard."""
    running = asyncio.get_running_loop()
    connections: list[Asynchronous] = []
    room = asyncio.Semaphore(MOST)

    async def read(shard: int, at: float) -> None:
        while True:
            await asyncio.sleep(at - time.monotonic())
            cost.late.append(time.monotonic() - at)
            async with room:
                if connections:
                    connection = connections.pop()
                else:
                    _, connection = await running.create_connection(Asynchronous, HOST, port)
                    cost.connections += 1
                request = signer.request("GetRecords", body_of(iterators[shard]))
                answer = await connection.call(request)
                iterators[shard] = answer.page().next_shard_iterator
                connections.append(connection)
            at += PERIOD

    now = time.monotonic()
    tasks = [
        running.create_task(read(shard, now + PERIOD * shard / len(iterators)))
        for shard in range(len(iterators))
    ]
    await asyncio.sleep(WARM_UP)
    cost.begin()
    await asyncio.sleep(seconds)
    cost.tell()
    for task in tasks:
        task.cancel()


def main(kind: str, port: int, shards: int, seconds: float) -> None:
    signer, cost = Signer(port), Cost()
    connection = Blocking(port)
    iterators = []
    for shard in range(shards):
        asked = {
            "StreamName": STREAM,
            "ShardId": f"shardId-{shard:012}",
            "ShardIteratorType": "LATEST",
        }
        answer = connection.call(signer.request("GetShardIterator", msgspec.json.encode(asked)))
        iterators.append(msgspec.json.decode(b"".join(answer.body))["ShardIterator"])
    if kind == "loop":
        asyncio.run(loop(signer, port, iterators, cost, seconds))
        return
    Threads(signer, port, iterators, cost)
    time.sleep(WARM_UP)
    cost.begin()
    time.sleep(seconds)
    cost.tell()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
