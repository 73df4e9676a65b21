"""The subscription that a cursor reads: watched, renewed in time, and closed by any thread."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import selectors
import threading
from collections.abc import Callable

from botocore.exceptions import ReadTimeoutError

from sparkinesis.metrics.catalogue import SUBSCRIPTIONS_ENDED
from sparkinesis.metrics.health.liveness import Part
from sparkinesis.metrics.metrics import OFF
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.http_answer import is_readable
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.subscription import ReceivedEvent, Subscription
from sparkinesis.stream.fan_out.interruption import CLOSED

RENEWAL = (240.0, 290.0)
"""The age in seconds at which a subscription is renewed, drawn evenly for each subscription. The
service ends them at 300; the draw spreads the renewals of many shards."""

SILENCE = 30.0
"""Seconds without bytes after which a connection counts as broken, as a read's time-out says. The
service sends events without records every few seconds."""


# Hundreds of shards share few threads, so no thread waits in a read for the next event: `due_in`
# hands the socket to one thread that watches all of them (`socket_watch`). Three things follow.
#
# - The time-out of a read never comes. A connection that broke without a sign is found by the time
#   since which `due_in` has seen no bytes (`_quiet_since`); before it counts as broken, it is asked
#   for bytes once more.
# - The watched descriptor must not be closed while a selector has it, because the next connection
#   may get its number, and another reader would be woken. So it is taken from the watch first, in
#   every way in which a subscription ends, under the lock under which `due_in` hands it over. A
#   `stop` that comes between the two finds `stopped` set, and nothing is watched.
# - Bytes may be here where no selector sees them: in the decoder, or decrypted within TLS.
#   `_has_data` asks for those first, or the event would wait for the next one.
#
# The service ends a subscription after 300 seconds. It is replaced before that, and closed first:
# of two at a time the service ends the older one by an error, which would look like another
# worker's subscription (`Cause.TAKEN_OVER`), and be followed by a long pause.
class CurrentSubscription:
    """The subscription of a shard, at most one. One thread begins, reads and drops it.

    Any thread may call `stop`, after which none is open. retry: the clock, and the chance of the
    renewal.
    """

    def __init__(self, client: StreamClient, shard_id: str, retry: Backoff) -> None:
        self._client = client
        self._shard_id = shard_id
        self._retry = retry
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        self.subscription: Subscription | None = None
        self._began_at: float | None = None
        self._renew_at: float
        """The time at which the subscription is renewed."""
        self._watched: int | None = None
        """The descriptor of the subscription's socket, if it is watched."""
        self._quiet_since: float | None = None
        """The time since which `due_in` has found no bytes; None: there were some."""

    @property
    def age(self) -> float | None:
        """The seconds since the last SubscribeToShard that succeeded; None without one."""
        return None if self._began_at is None else self._retry.clock() - self._began_at

    @property
    def is_to_be_renewed(self) -> bool:
        """True if the subscription is so old that another one replaces it; there is one."""
        return self._retry.clock() >= self._renew_at

    def begin(self, subscription: Subscription) -> None:
        """Take a new subscription; close it if `stop` was called while it was made."""
        self._began_at = self._retry.clock()
        self._quiet_since = None
        self._renew_at = self._began_at + self._retry.uniform(*RENEWAL)
        with self._lock:
            self.subscription = subscription
            is_late = self.stopped.is_set()
            if is_late:
                subscription.close()
        if is_late:
            self.count_end(CLOSED)

    def due_in(self, subscription: Subscription, wake: Callable[[], None]) -> float:
        """Return the seconds until it is to be read, or renewed; 0: now.

        wake: is called, once, if an event arrives before.
        """
        now = self._retry.clock()
        if _has_data(subscription):
            return 0.0
        if self._quiet_since is None:
            self._quiet_since = now
        left = min(self._renew_at, self._quiet_since + SILENCE) - now
        if left > 0:
            with self._lock:
                if not self.stopped.is_set():
                    self._watched = subscription.fileno()
                    socket_watch().when_readable(self._watched, wake)
        return left

    def next_event(self, subscription: Subscription) -> ReceivedEvent | None:
        """Wait for the next event, or the end (None). Raises what `Subscription.next_event` raises.

        Raises ReadTimeoutError if no bytes have come for `SILENCE`: the connection must be broken.
        """
        since = self._quiet_since
        if since is not None and (
            self._retry.clock() >= since + SILENCE and not _has_data(subscription)
        ):
            raise ReadTimeoutError(endpoint_url=str(self._client.address))
        received = subscription.next_event()
        self._quiet_since = None
        return received

    def drop(self, ending: str) -> None:
        """Close the subscription, if there is one."""
        with self._lock:
            self._watch_no_longer()
            # A subscription that `stop` has closed is counted there.
            is_open = self.subscription is not None and not self.stopped.is_set()
            if self.subscription is not None:
                self.subscription.close()
                self.subscription = None
        if is_open:
            self.count_end(ending)

    def stop(self) -> None:
        """Close the subscription, with a `next_event` that waits, and each later one."""
        with self._lock:
            is_open = self.subscription is not None and not self.stopped.is_set()
            self.stopped.set()
            self._watch_no_longer()
            if self.subscription is not None:
                self.subscription.close()
        if is_open:
            self.count_end(CLOSED)

    def count_end(self, ending: str) -> None:
        """Measure that a subscription has ended, or was refused."""
        if self._client.metrics is not OFF:
            labels = (self._client.address.name, self._shard_id, ending)
            self._client.metrics.add(SUBSCRIPTIONS_ENDED, labels)

    def _watch_no_longer(self) -> None:
        if self._watched is not None:
            socket_watch().forget(self._watched)
            self._watched = None


def _has_data(subscription: Subscription) -> bool:
    """Return True if a part of the next event, or the end, can be read at once."""
    return subscription.has_data or is_readable(subscription.fileno())


_log = logging.getLogger(__name__)

_POLL_EVERY = 0.05
"""Seconds, where the operating system does not let one thread add a socket while another waits."""


class SocketWatch:
    """Calls a function, once, when a socket has data or was closed by its peer. For any thread.

    The function is called in the thread that watches, and must return at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        kind = type(self._selector).__name__
        self._timeout = None if kind in {"EpollSelector", "KqueueSelector"} else _POLL_EVERY
        self._thread: threading.Thread | None = None

    def when_readable(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call ``call`` when the socket of this descriptor is readable.

        A later call for the same descriptor replaces the function.
        """
        with self._lock:
            try:
                self._selector.register(descriptor, selectors.EVENT_READ, call)
            except KeyError:
                self._selector.modify(descriptor, selectors.EVENT_READ, call)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sparkinesis-sockets", daemon=True
                )
                self._thread.start()

    def forget(self, descriptor: int) -> None:
        """Watch a socket no longer. Call this before the descriptor is closed."""
        with self._lock, contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def part(self, name: str) -> Part:
        """Return the thread as a part of a process that must go on."""
        thread = self._thread
        return Part(name, is_dead=thread is not None and not thread.is_alive())

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._timeout):
                with self._lock:
                    if self._selector.get_map().get(key.fd) is not key:
                        continue  # forgotten, or used again, since it became readable
                    self._selector.unregister(key.fd)
                try:
                    key.data()
                except Exception:  # noqa: BLE001 - the other readers are woken nevertheless
                    _log.exception("A reader of a subscription could not be woken.")


def socket_watch() -> SocketWatch:
    """Return the watch of this process."""
    return _watch(os.getpid())


@functools.cache
def _watch(_: int) -> SocketWatch:
    """Cached by process id: a child has no copy of the thread."""
    return SocketWatch()
