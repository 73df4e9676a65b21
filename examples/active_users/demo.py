"""The course of the demo: what happens when, and what has to come out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from examples.active_users.board import Board
from examples.active_users.display import Display
from examples.active_users.users import HOURS, Crowd, PastClock, put_past
from examples.flights.shards import merge_two, open_shards, short, split_one
from sparkinesis.local import LocalServer

STREAM = "heartbeats"
REGION = "eu-west-1"
SHARDS = 2
STALLED_SECONDS = 30.0
"""Without what is waited for, something is wrong."""

Start: TypeAlias = Callable[[str, Board], Callable[[], None]]
"""Starts the application on an endpoint, to keep a board; returns what stops it."""


class DemoFailedError(Exception):
    """Something did not come out as it has to; the message says what."""


class Demo:
    """One run; a context manager, which leaves nothing running."""

    def __init__(self, start: Start, minute: float, display: Display) -> None:
        self._start = start
        self._minute = minute
        self._silence = 2 * minute
        self._display = display
        self._clock = PastClock()
        self._server = LocalServer(clock=self._clock, dynamodb=True)
        self._boards: list[Board] = []
        self._stop: Callable[[], None] | None = None

    def run(self) -> None:
        """Raises `DemoFailedError`."""
        with self._server:
            kinesis = self._server.client("kinesis", REGION)
            self._crowd = Crowd(kinesis, STREAM, self._minute)
            try:
                self._course(kinesis)
            finally:
                if self._crowd.is_alive():
                    self._crowd.stop()
                self._stop_application()
        self._verify()

    def _course(self, kinesis: Any) -> None:
        note, crowd = self._display.note, self._crowd
        self._clock.hours_ago = HOURS
        kinesis.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        past = put_past(kinesis, STREAM, self._clock)
        note(f"{past:,} heartbeats of the last {HOURS} hours are in the stream, and a reshard")
        crowd.come(_users(1, 20))
        crowd.start()

        self._start_application()
        self._until_right("the board is right")
        note(f"shard {split_one(kinesis, STREAM)} split; 5 users go, 5 come")
        crowd.go(_users(1, 5))
        crowd.come(_users(21, 25))
        self._until_right("those who went are evicted, nobody else")
        note(f"shards {merge_two(kinesis, STREAM)} merged")
        self._pause(self._silence)
        self._until_right("nobody was evicted")

        self._stop_application()
        note(f"application stopped; shard {split_one(kinesis, STREAM)} split; 5 users go, 5 come")
        crowd.go(_users(6, 10))
        crowd.come(_users(26, 30))
        self._pause(2 * self._silence)
        self._start_application()
        self._until_right("the board is right")
        self._pause(self._silence)
        self._until_right("and stays so")
        shards = ", ".join(short(shard) for shard in open_shards(kinesis, STREAM))
        note(f"open shards: {shards}")

    def _start_application(self) -> None:
        self._board = Board(not_before=time.time() - self._silence)
        self._boards.append(self._board)
        self._stop = self._start(self._server.endpoint_url, self._board)
        self._display.note("application started")

    def _stop_application(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def _verify(self) -> None:
        print_ = self._display.console.print
        given = sum(board.heartbeats for board in self._boards)
        old = sum(board.old for board in self._boards)
        evictions = [eviction for board in self._boards for eviction in board.evictions]
        wrong = [
            eviction
            for eviction in evictions
            if not self._crowd.was_silent(eviction.user, eviction.heard, self._silence)
        ]
        there, active = self._crowd.beating, self._board.active.keys()
        print_(f"{given:,} heartbeats processed, {old} of them old")
        print_(f"{len(evictions)} evictions, {len(wrong)} of them wrong")
        print_(f"{len(active)} users are active, {len(there)} are there")
        if old:
            raise DemoFailedError("Heartbeats that nobody wants to know were processed.")
        if wrong:
            raise DemoFailedError(f"Evicted, but not silent: {wrong}")
        if not {eviction.user for eviction in evictions} >= set(_users(1, 5)):
            raise DemoFailedError(f"Users who went were not evicted. Evicted: {evictions}")
        if active != there:
            raise DemoFailedError(f"Active or there, but not both: {sorted(active ^ there)}")

    def _until_right(self, then: str) -> None:
        """Wait until exactly the users who are there are active."""

        def is_right() -> bool:
            return self._board.active.keys() == self._crowd.beating

        since = time.monotonic()
        while not is_right():
            if time.monotonic() - since > STALLED_SECONDS:
                wrong = sorted(self._board.active.keys() ^ self._crowd.beating)
                raise DemoFailedError(f"Active or there, but not both, for too long: {wrong}")
            self._show()
        self._display.note(f"{then}: {len(self._crowd.beating)} users are active")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._show()

    def _show(self) -> None:
        if self._crowd.failure is not None:
            raise DemoFailedError(f"The users failed: {self._crowd.failure!r}")
        self._display.show(self._board, self._crowd.beating, self._minute)
        time.sleep(0.05)


def _users(first: int, last: int) -> list[str]:
    return [f"user-{number:02}" for number in range(first, last + 1)]
