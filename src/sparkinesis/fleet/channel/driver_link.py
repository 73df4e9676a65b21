"""A worker's end of the control channel: connects, reconnects, and passes on messages."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import msgspec

from sparkinesis.fleet.channel.channel import (
    Channel,
    ChannelClosedError,
    connect_to_driver,
)
from sparkinesis.fleet.channel.tls import NotAuthenticatedError, WorkerCredentials
from sparkinesis.worker.supervision.messages import (
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ToWorker,
    decode_for_worker,
    encode,
)


class DriverLink:
    """The connection of a worker to its driver, from `open` to `close`.

    It reads in a thread of its own; its methods are for one other thread. It reconnects when the
    connection breaks. Messages that are sent meanwhile are lost, except for the last `Leaving`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        credentials: WorkerCredentials,
        hello: Callable[[], Hello],
        on_message: Callable[[ToWorker], None],
        *,
        lost_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = host, port
        self._pass = credentials
        self._hello = hello
        self._on_message = on_message
        self._lost_after = lost_after
        self._clock = clock
        self._heard = clock()
        self._channel: Channel | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driver-link", daemon=True)
        self._leaving: Leaving | None = None
        self.connections = 0
        """The number of connections made so far. The last messages on earlier ones may be lost."""
        self.has_answer = False
        """True once the driver has sent a message, and so has read a `Hello`."""

    def open(self) -> None:
        """Connect; retry for ``lost_after`` seconds.

        Raises `ChannelClosedError` if the driver cannot be reached, `NotAuthenticatedError` if the
        server is not this run's driver.
        """
        until = self._clock() + self._lost_after
        while True:
            try:
                self._connect()
            except ChannelClosedError:
                if self._clock() >= until:
                    raise
                self._closing.wait(self._pause)
            else:
                break
        self._thread.start()

    def why_lost(self) -> str | None:
        """The reason to do without the driver: silence for ``lost_after`` seconds; else None."""
        silent_for = self._clock() - self._heard
        if silent_for < self._lost_after:
            return None
        return f"the driver is lost, without a message for {silent_for:.1f} s"

    def send(self, message: Report | Leaving | Ended) -> bool:
        """Send a message if there is a connection; return True if it was sent."""
        if isinstance(message, Leaving):
            self._leaving = message
        channel = self._channel
        if channel is None:
            return False
        # The reading thread notices a broken connection too, and reconnects.
        with contextlib.suppress(ChannelClosedError):
            channel.send(encode(message))
            return True
        return False

    def send_last(self, message: Callable[[], Report | Ended]) -> None:
        """Send a message as soon as there is a connection, unless the driver is lost.

        message: makes it, for each try: a new connection may need more.
        """
        while not self.send(message()) and self.why_lost() is None:
            self._closing.wait(self._pause)

    def close(self) -> None:
        self._closing.set()
        if self._channel is not None:
            self._channel.close()

    @property
    def _pause(self) -> float:
        """Seconds between two attempts to connect."""
        return min(1.0, self._lost_after / 10)

    def _connect(self) -> None:
        channel = connect_to_driver(*self._place, self._pass)
        channel.send(encode(self._hello()))
        sent = self._leaving
        if sent is not None:
            channel.send(encode(sent))
        self._heard = self._clock()
        self.connections += 1
        self._channel = channel
        current = self._leaving
        if current is not None and current is not sent:
            self.send(current)  # set by another thread before there was a connection
        if self._closing.is_set():
            channel.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._channel is not None:
                self._read(self._channel)
                self._channel = None
                continue
            try:
                self._connect()
            except (ChannelClosedError, NotAuthenticatedError):
                self._closing.wait(self._pause)

    def _read(self, channel: Channel) -> None:
        try:
            while True:
                message = decode_for_worker(channel.receive())
                self._heard = self._clock()
                self.has_answer = True
                if not isinstance(message, Ping):
                    self._on_message(message)
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError):
            channel.close()
