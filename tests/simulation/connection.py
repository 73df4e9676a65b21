"""The connection of one subscription: the service pushes at one end, a reader takes at the other.

The service's end is as `sparkinesis.local.wire.push` has it, on timers: an event is taken from the
shard when there is room on the way. The reader's end is what urllib3 makes of a body that comes in
bit by bit.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from sparkinesis.local import LocalKinesis
from sparkinesis.local.clock import IdleUntil
from sparkinesis.local.encoding.codecs import JsonCodec
from sparkinesis.local.model.registered_consumer import (
    EVENT,
    End,
    ExceptionEvent,
    PushedEvent,
    ServedSubscription,
)
from sparkinesis.local.wire import push
from tests.simulation.kinesis import READ_TIMEOUT
from tests.simulation.network import URL, Faults
from tests.simulation.scheduler import Process, Scheduler, Task

PUSHED = "SubscribeToShardEvent"
"""The operation, as `Faults` know it, by whose name an event meets one of `network.FAULTS`."""

_EXCEPTIONS = {
    "throttle": "KMSThrottlingException",
    "denied": "KMSAccessDeniedException",
    "error": "InternalFailureException",
    "error_after": "InternalFailureException",
    "expired": "ResourceInUseException",
}
"""Faults that replace an event, or follow one, with the stream's last message."""
_CUTS = {"reset", "reset_after", "refused"}
"""The connection ends within the event, or behind it. ``refused``: and it looks like a good end."""
_SILENCES = {"timeout", "timeout_after"}
"""Faults that lose an event, or everything after it, without closing the connection."""
_LONGEST_STALL = 60.0
"""Seconds by which a ``late`` event is delayed."""
_UNNOTICED = 60.0
"""Seconds within which the service notices that a reader has vanished."""

_Bit: TypeAlias = bytes | BaseException | None
"""One item from the wire: bytes, the end of the stream (None), or the error that breaks it."""


class Connection:
    """A connection with both ends, and its history for invariants. Instants are virtual seconds."""

    def __init__(
        self,
        scheduler: Scheduler,
        kinesis: LocalKinesis,
        subscription: ServedSubscription,
        process: Process,
        faults: Faults,
    ) -> None:
        self.process = process
        self.shard_id = subscription.shard.id
        self.began = scheduler.now
        self.opened: float | None = None
        """The time at which its reader got it; None if its answer never arrived."""
        self.closed: float | None = None
        """The time at which its reader closed it."""
        self.ended: float | None = None
        """The time at which the service closed it."""
        self.met: str | None = None
        """The fault that ended it, "taken over", or the name of the service's message."""
        self.events = 0
        self.when_readable: Callable[[], None] | None = None
        """Called once when there is something to read; see `Sockets`."""
        self._scheduler = scheduler
        self._kinesis = kinesis
        self._subscription = subscription
        self._faults = faults
        # Its own, as one shard's events may wake two connections in any order.
        self._rng = random.Random(scheduler.rng.getrandbits(32))
        self._room = self._rng.choice((1_000, 4_000, 65_536))
        self._codec = JsonCodec()
        self._turn = 0
        self._is_silent = False
        self._is_dying = False
        self._arrives = 0.0
        self._on_the_way = 0
        self._bits: deque[_Bit] = deque()
        self._reader: Task | None = None
        subscription.alarm.wake = self._push_soon
        first = push.event("initial-response", self._codec.content_type, b"{}")
        self._send(first)
        self._push_soon()

    # --- the service's end

    def _push_soon(self) -> None:
        self._push_at(self._scheduler.now)

    def _push_at(self, instant: float) -> None:
        self._turn += 1
        turn = self._turn
        self._scheduler.at(instant, lambda: self._push(turn))

    def _push(self, turn: int) -> None:
        if turn != self._turn or self.ended is not None:
            return
        if self.process.is_killed:
            self._die_unnoticed()
        if self._on_the_way >= self._room:
            return  # `read` makes room
        step = self._kinesis.next_step(self._subscription)
        if isinstance(step, IdleUntil):
            timeout = self._kinesis.timeout_s(step.until_ms)
            assert timeout is not None
            self._push_at(self._scheduler.now + timeout)
        elif isinstance(step, PushedEvent):
            self._send_event(self._codec.encode(step.page))
        elif isinstance(step, ExceptionEvent):
            self.met = self.met or step.code
            self._fail(step.code, step.message)
        else:
            assert isinstance(step, End)
            self._arrive(None)
            self._end()

    def _send_event(self, payload: bytes) -> None:
        message = push.event(EVENT, self._codec.content_type, payload)
        fault = None if self._is_silent else self._faults("kinesis", PUSHED, self.process)
        if fault is not None and fault != "slow":
            self.met = fault
        if fault in _SILENCES:
            if fault == "timeout_after":
                self._send(message)
            self._is_silent = True
            self._die_unnoticed()
        elif fault in _EXCEPTIONS:
            if fault == "error_after":
                self._send(message)
            self._fail(_EXCEPTIONS[fault], "Injected")
        elif fault in _CUTS:
            whole = len(message)
            self._send(message[: whole if fault == "reset_after" else self._rng.randrange(whole)])
            is_good = fault == "refused"
            self._arrive(None if is_good else ConnectionResetError("Connection reset"))
            self._end()
        else:
            if fault == "slow":
                self._hold_up(1.0 + 2.0 * self._rng.random())
            elif fault == "late":
                self._hold_up(_LONGEST_STALL * self._rng.random())
            self._send(message)
        if self.ended is None:
            self._push_soon()

    def _fail(self, code: str, message: str) -> None:
        payload = self._codec.encode({"message": message})
        self._send(push.exception(code, self._codec.content_type, payload))
        self._arrive(None)
        self._end()

    def _end(self) -> None:
        if self.ended is None:
            self.ended = self._scheduler.now
            self._kinesis.release(self._subscription)

    def _die_unnoticed(self) -> None:
        """The reader vanishes without closing; the service notices only after a while."""
        if not self._is_dying:
            self._is_dying = True
            self._scheduler.at(self._scheduler.now + _UNNOTICED * self._rng.random(), self._end)

    # --- the way

    def _send(self, data: bytes) -> None:
        """Sends the data, now and then in two parts that are cut anywhere in a message."""
        if self._rng.random() < 0.2:
            place = self._rng.randrange(len(data) + 1)
            self._arrive(data[:place])
            data = data[place:]
        self._arrive(data)

    def _arrive(self, bit: _Bit) -> None:
        """Delivers the item after everything that was sent before."""
        if self._is_silent or bit == b"":
            return
        if isinstance(bit, bytes):
            self._on_the_way += len(bit)
        there = self._scheduler.now + 0.002 + 0.01 * self._rng.random()
        self._arrives = max(self._arrives, there)
        self._scheduler.at(self._arrives, lambda: self._has_arrived(bit))

    def _hold_up(self, seconds: float) -> None:
        self._arrives = max(self._arrives, self._scheduler.now) + seconds

    def _has_arrived(self, bit: _Bit) -> None:
        if isinstance(bit, bytes):
            self.events += 1
        self._bits.append(bit)
        self._wake_reader()

    # --- the reader's end

    @property
    def has_arrived(self) -> bool:
        """True if a read would not wait."""
        return bool(self._bits) or self.closed is not None

    def read(self, most: int) -> bytes:
        """Waits for at most ``most`` bytes; returns none at the end. Raises a socket's errors."""
        scheduler = self._scheduler
        scheduler.maybe_pause()
        if not self._bits and self.closed is None:
            self._reader = scheduler.current
            scheduler.park(READ_TIMEOUT)
            self._reader = None
        if self.closed is not None:
            raise ConnectionResetError("it was shut down")
        if not self._bits:
            raise TimeoutError("Read timed out.")
        bit = self._bits[0]
        if not isinstance(bit, bytes):
            if bit is None:
                return b""
            raise bit
        self._bits.popleft()
        if len(bit) > most:
            bit, rest = bit[:most], bit[most:]
            self._bits.appendleft(rest)
        is_full = self._on_the_way >= self._room
        self._on_the_way -= len(bit)
        if is_full:
            self._push_soon()
        return bit

    def close(self) -> None:
        """The reader lets go. The service hears of it in a moment, if it can."""
        if self.closed is not None:
            return
        self.closed = self._scheduler.now
        self._wake_reader()
        if self._is_silent:
            self._die_unnoticed()
        else:
            self._scheduler.at(self._scheduler.now + 0.002 + 0.01 * self._rng.random(), self._end)

    def _wake_reader(self) -> None:
        if self._reader is not None:
            self._scheduler.wake(self._reader)
        self.tell_reader()

    def tell_reader(self) -> None:
        """Calls what `Sockets` was given, once, in a task of its own."""
        call, self.when_readable = self.when_readable, None
        if call is not None:
            self._scheduler.spawn(self.process, "sockets", call)


class Body:
    """The reader's end, as far as `stream.calls.subscription` uses a `StreamedBody`."""

    url = URL

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def has_data(self) -> bool:
        return self._connection.has_arrived

    def fileno(self) -> Any:
        """Return the connection, which `Sockets` watches."""
        return self._connection

    def await_data(self, milliseconds: int) -> bool:
        """Nothing comes at once here; the first message is read with the first event."""
        return False

    @staticmethod
    def instant_in(seconds: float) -> float:
        """Return an instant that never comes: a simulated event arrives as a whole."""
        return math.inf

    def read(self, most: int, until: float, /) -> bytes:
        return self._connection.read(most)

    def shutdown(self) -> None:
        self._connection.close()

    def close(self) -> None:
        self._connection.close()


class Sockets:
    """Replaces `stream.fan_out.current_subscription` for connections of simulated worlds."""

    def when_readable(self, connection: Connection, call: Callable[[], None]) -> None:
        connection.when_readable = call
        if connection.has_arrived:
            connection.tell_reader()

    def forget(self, connection: Connection) -> None:
        connection.when_readable = None


def is_readable(connection: Connection) -> bool:
    return connection.has_arrived
