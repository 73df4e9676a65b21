"""Real connections for tests of the control channel, and a man in the middle."""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparkinesis.fleet.channel import (
    HANDSHAKE_TIMEOUT,
    Channel,
    Connection,
    accept_worker,
    authenticated,
    connect_to_driver,
)
from sparkinesis.fleet.channel_tls import DriverIdentity, WorkerCredentials
from sparkinesis.fleet.control_server import ControlServer
from sparkinesis.worker.supervision.control_messages import Hello, encode

_T = TypeVar("_T")

PATIENCE = 60.0
"""Seconds that a test waits; only a failure takes as long."""
SECRET = bytes(range(200, 232))
IDENTITY = DriverIdentity.new(SECRET)
CREDENTIALS = IDENTITY.credentials
OTHER_RUN = DriverIdentity.new(bytes(32))
GREETING, ANSWER, PROOF = 14 + 32, 32 + 32, 32
"""Bytes of the three messages by which both sides prove the secret, within TLS."""
LENGTH, MAC = 4, 32


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def in_thread(call: Callable[..., Any], *args: Any, **given: Any) -> Future[Any]:
    """Run a function in a thread; return the future of its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call, *args, **given)
    pool.shutdown(wait=False)
    return future


def hello(worker: str = "w") -> Hello:
    return Hello(worker, 0, 1, 0, "host", 1, 2, 3)


class Driver:
    """A control server, and the messages that it received."""

    def __init__(self, port: int = 0, identity: DriverIdentity = IDENTITY, **options: Any) -> None:
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.control = ControlServer(
            "127.0.0.1", port, identity, lambda *event: self.events.put(event), **options
        )

    def next(self) -> tuple[str, Any]:
        return self.events.get(timeout=PATIENCE)

    def expect(self, kind: type[_T], worker: str = "w") -> _T:
        who, what = self.next()
        assert who == worker
        assert isinstance(what, kind), what
        return what

    def connect(self) -> socket.socket:
        """A connection without TLS, as a stranger makes it."""
        connection = socket.create_connection(("127.0.0.1", self.control.port))
        connection.settimeout(PATIENCE)
        return connection

    def join(self, first: Any = None) -> Channel:
        """Connect as a worker and send this first message; the caller closes the connection."""
        channel = connect_to_driver("127.0.0.1", self.control.port, CREDENTIALS)
        channel.send(encode(hello() if first is None else first))
        return channel


def prove(connection: socket.socket, timeout: float = HANDSHAKE_TIMEOUT, **given: Any) -> Channel:
    """Return one side's channel, without TLS."""
    return authenticated(connection, SECRET, time.monotonic() + timeout, **given)


@contextlib.contextmanager
def handshake(
    identity: DriverIdentity, credentials: WorkerCredentials
) -> Iterator[tuple[Any, Any]]:
    """Yield the futures of both ends' channels."""
    with listening() as listener:
        worker = in_thread(connect_to_driver, "127.0.0.1", port_of(listener), credentials)
        driver = in_thread(accept_worker, listener.accept()[0], identity)
        try:
            yield driver, worker
        finally:
            for future in (driver, worker):
                if future.exception(PATIENCE) is None:
                    future.result().close()


@contextlib.contextmanager
def channels() -> Iterator[tuple[Channel, Channel]]:
    """Yield the driver's channel and the worker's."""
    with handshake(IDENTITY, CREDENTIALS) as (driver, worker):
        yield driver.result(PATIENCE), worker.result(PATIENCE)


def read(connection: Connection, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            break
        data += piece
    return data


@dataclass
class Tap:
    """A man in the middle, who reads everything and passes on what he likes."""

    driver: Channel
    worker: Channel
    to_driver: socket.socket
    to_worker: socket.socket
    seen: list[bytes] = field(default_factory=list)

    def take(self, *, from_worker: bool) -> bytes:
        """Return the next message as on the wire."""
        source = self.to_worker if from_worker else self.to_driver
        head = read(source, LENGTH)
        frame = head + read(source, int.from_bytes(head, "big") + MAC)
        self.seen.append(frame)
        return frame


@contextlib.contextmanager
def tapped() -> Iterator[Tap]:
    """Yield a connection without TLS, through a man in the middle who let the proofs pass."""
    with contextlib.ExitStack() as stack:
        listener, middle = stack.enter_context(listening()), stack.enter_context(listening())
        near = stack.enter_context(socket.create_connection(middle.getsockname()))
        worker = in_thread(prove, near, is_driver=False)
        to_worker = stack.enter_context(middle.accept()[0])
        to_driver = stack.enter_context(socket.create_connection(("127.0.0.1", port_of(listener))))
        for each in (to_worker, to_driver):
            each.settimeout(PATIENCE)
        far = stack.enter_context(listener.accept()[0])
        driver = in_thread(prove, far, is_driver=True)
        seen = []
        for source, target, count in (
            (to_driver, to_worker, GREETING),
            (to_worker, to_driver, ANSWER),
            (to_driver, to_worker, PROOF),
        ):
            seen.append(read(source, count))
            target.sendall(seen[-1])
        tap = Tap(driver.result(PATIENCE), worker.result(PATIENCE), to_driver, to_worker, seen)
        stack.callback(tap.driver.close)
        stack.callback(tap.worker.close)
        yield tap
