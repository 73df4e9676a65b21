"""A worker's link to its driver: connects, connects again, and hands on what the driver says."""

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
from sparkinesis.fleet.channel.messages import (
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ToWorker,
    decode_for_worker,
    encode,
)
from sparkinesis.fleet.channel.tls import NotAuthenticatedError, WorkerCredentials


class DriverLink:
    """Reads in a thread of its own, from `open` to `close`; other methods are for one thread.

    A broken connection is made anew; messages sent meanwhile are lost, but for the last one that
    says why the worker leaves.
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
        """Made so far. Of what was sent on earlier ones, the last may be lost."""
        self.has_answer = False
        """Whether the driver has said anything, and so has read a greeting."""

    def open(self) -> None:
        """Connect, trying for as long as a driver may be lost.

        Raises `ChannelClosedError` if it cannot be reached, `NotAuthenticatedError` if it is
        another one.
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

    @property
    def silent_for(self) -> float:
        """Seconds since the driver was last heard of."""
        return self._clock() - self._heard

    @property
    def is_lost(self) -> bool:
        """Whether the driver was silent for too long."""
        return self.silent_for >= self._lost_after

    def send(self, message: Report | Leaving | Ended) -> bool:
        """Send, if there is a connection; whether it was sent."""
        if isinstance(message, Leaving):
            self._leaving = message
        channel = self._channel
        if channel is None:
            return False
        # The reading thread sees a broken connection too, and makes a new one.
        with contextlib.suppress(ChannelClosedError):
            channel.send(encode(message))
            return True
        return False

    def send_last(self, message: Ended) -> None:
        """Send as soon as there is a connection, unless the driver is lost."""
        while not self.send(message) and not self.is_lost:
            self._closing.wait(self._pause)

    def close(self) -> None:
        self._closing.set()
        if self._channel is not None:
            self._channel.close()

    @property
    def _pause(self) -> float:
        """Between two tries to connect."""
        return min(1.0, self._lost_after / 10)

    def _connect(self) -> None:
        channel = connect_to_driver(*self._place, self._pass)
        channel.send(encode(self._hello()))
        told = self._leaving
        if told is not None:
            channel.send(encode(told))
        self._heard = self._clock()
        self.connections += 1
        self._channel = channel
        said = self._leaving
        if said is not None and said is not told:
            self.send(said)  # meanwhile, when there was no connection yet
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
