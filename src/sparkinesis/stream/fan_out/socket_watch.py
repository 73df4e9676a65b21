"""Waits for data on many sockets in one thread."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import selectors
import threading
from collections.abc import Callable

from sparkinesis.metrics.health.liveness import Part

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
