"""The waits of one response: for an alarm, an instant, or the client's leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from sparkinesis.local.kinesis import CallResult, LocalKinesis, PendingCall
from sparkinesis.local.model.alarm import Alarm

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Waiting:
    """What the sender of a response waits for. For one event loop, but for the alarm.

    receive: of the request, whose body has been read.
    """

    def __init__(self, alarm: Alarm, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._gone = loop.create_task(_disconnected(receive))
        self._gone.add_done_callback(lambda _: self._woken.set())
        alarm.wake = lambda: loop.call_soon_threadsafe(self._woken.set)

    @property
    def client_left(self) -> bool:
        return self._gone.done()

    def begin(self) -> None:
        """Begin a turn: what rings from now on ends its wait."""
        self._woken.clear()

    async def wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._woken.wait(), timeout_s)

    def end(self) -> None:
        self._gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def result_of(
    kinesis: LocalKinesis, call: PendingCall, receive: Receive
) -> CallResult | None:
    """Wait for the result of a call, by no thread; return None once its client has gone."""
    assert call.poll is not None, "only a receive waits"
    waiting = Waiting(call.poll.alarm, receive)
    try:
        while not waiting.client_left:
            waiting.begin()
            step = kinesis.resume(call)
            if isinstance(step, CallResult):
                return step
            await waiting.wait(kinesis.timeout_s(step.until_ms))
        return None
    finally:
        waiting.end()
        kinesis.leave(call)
