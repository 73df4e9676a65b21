"""The workers of a `QueueRun`: what they receive, handle and acknowledge, up to their crashes."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from sparkinesis.queue.client import Answered, QueueClient, Received
from sparkinesis.queue.record import QueueRecord
from sparkinesis.queue.worker import QueueWorker
from sparkinesis.worker.processors.user_calls import asynchronous

LOOK_EVERY = 0.002
"""Seconds between two looks at a run."""

_T = TypeVar("_T")


class _CrashedError(Exception):
    """A call of a worker that was abandoned."""


class Journal:
    """What the workers of a run have received, handled and acknowledged. For any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.delivered: list[QueueRecord] = []
        self.acknowledged: list[Received] = []
        self.received: dict[str, Received] = {}
        """By receipt handle, in order."""
        self.repeated: set[str] = set()
        """The ids of records that were acknowledged once, and delivered again after that."""

    def note(self, operation: str, answer: Any) -> None:
        """Note what a call has brought."""
        with self.lock:
            if operation == "ReceiveQueueRecords":
                self.received.update((one.receipt_handle, one) for one in answer)
            elif operation == "AcknowledgeQueueRecords":
                done = [one.receipt_handle for one in answer if one.code is None]
                self.acknowledged += [self.received[handle] for handle in done]


class Life:
    """One worker of a run, up to its crash: its calls on the queue, and those of its handler.

    repeats_below: a record that is acknowledged for the first time, in a delivery below this one,
    is delivered again.
    """

    def __init__(self, journal: Journal, repeats_below: float) -> None:
        self.journal = journal
        self.repeats_below = repeats_below
        self.client: _Client
        self.worker: QueueWorker
        self.calls: dict[object, int] = {}
        """The calls of the handler that run, with their numbers of records."""
        self.crash_after: int | None = None
        """The number of user records after whose handling the worker crashes; None: never."""
        self.began = 0
        self.calls_under_way = 0
        self.has_crashed = False
        self._last: object | None = None
        """The call after which the worker crashes; None: it has not begun."""

    def new_client(self, *given: Any) -> QueueClient:
        self.client = _Client(self, *given)
        return self.client

    def watched(self, handler: Callable[..., Any], timeout: float) -> Callable[..., Any]:
        """Return a handler whose calls are noted, and none of which begins after the crash."""
        if asynchronous(handler) is None:

            @functools.wraps(handler)
            def call(given: Any) -> Any:
                key = self._begin(given)
                while key is None:
                    if self.has_crashed:  # a return before would acknowledge
                        return None
                    time.sleep(LOOK_EVERY)
                try:
                    return handler(given)
                finally:
                    self._end(key, timeout)

            return call

        @functools.wraps(handler)
        async def task(given: Any) -> Any:
            key = self._begin(given)
            while key is None:
                if self.has_crashed:
                    return None
                await asyncio.sleep(LOOK_EVERY)
            try:
                made: Awaitable[Any] = handler(given)
                return await made
            finally:
                if key is self._last:
                    await asyncio.to_thread(self._end, key, timeout)
                else:
                    self._end(key, timeout)

        return task

    def _begin(self, given: Any) -> object | None:
        """Note a call that begins, and return a key for it; None: it may not begin."""
        records = given if isinstance(given, list) else [given]
        with self.journal.lock:
            if self.has_crashed or self._last is not None:
                return None
            self.journal.delivered += records
            self.began += len(records)
            key = object()
            self.calls[key] = len(records)
            if self.crash_after is not None and self.began >= self.crash_after:
                self._last = key
        return key

    def _end(self, key: object, timeout: float) -> None:
        is_last = key is self._last
        if is_last:
            # What was handled before is acknowledged: a test should do the same again.
            deadline = time.monotonic() + timeout
            while self.worker.activity.is_settling and time.monotonic() < deadline:
                time.sleep(LOOK_EVERY)
        with self.journal.lock:
            self.has_crashed |= is_last
            del self.calls[key]

    def crash(self) -> None:
        with self.journal.lock:
            self.has_crashed = True


class _Client(QueueClient):
    """The calls of one worker on its queue. None begins after its crash, or tells it anything."""

    def __init__(self, life: Life, *given: Any) -> None:
        super().__init__(*given)
        self._life = life

    def call_once(
        self, operation: str, call: Callable[[Any], _T], shard_id: str | None = None
    ) -> _T:
        life, journal = self._life, self._life.journal
        with journal.lock:
            if life.has_crashed:
                raise _CrashedError(operation)
            life.calls_under_way += 1
        try:
            answer = super().call_once(operation, call, shard_id)
            journal.note(operation, answer)
        finally:
            with journal.lock:
                life.calls_under_way -= 1
        if life.has_crashed:
            raise _CrashedError(operation)
        return answer

    def acknowledge(self, handles: Sequence[str]) -> list[Answered]:
        life, journal = self._life, self._life.journal
        with journal.lock:
            first = [
                handle
                for handle in handles
                if (one := journal.received[handle]).receive_count < life.repeats_below
                and one.record_id not in journal.repeated
            ]
            journal.repeated.update(journal.received[handle].record_id for handle in first)
        others = [handle for handle in handles if handle not in first]
        answers = self.set_visibility([(handle, 0) for handle in first]) if first else []
        if others:
            answers += super().acknowledge(others)
        return answers
