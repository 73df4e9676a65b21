"""The course of the demo, and the checks of its result."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from typing import Any, Protocol

from examples.active_users.board import Board, Running
from examples.active_users.display import Display
from examples.active_users.users import (
    HOURS,
    MOBILE,
    STREAMS,
    WEB,
    Crowd,
    PastClock,
    put_past,
    was_silent,
)
from examples.flights.shards import merge_two, open_shards, short, split_one
from sparkinesis.local import LocalServer

REGION = "eu-west-1"
SHARDS = 2
"""Shards of each stream at first."""
HEARTBEATS_AN_HOUR = 1_000
"""Heartbeats of both streams together."""
SHORT_HEARTBEATS_AN_HOUR = 100
STALLED_SECONDS = 240.0
"""The demo fails if an awaited event takes longer than this and four minutes of the users.

On a busy machine, Spark takes a minute or more for its first batch.
"""


class Start(Protocol):
    """Starts the application on an endpoint; the application keeps a board."""

    def __call__(self, *, endpoint: str, board: Board) -> Running: ...


class DemoFailedError(Exception):
    """The result of the demo is wrong. The message says what is wrong."""


class Demo:
    """One run of the demo. `run` leaves no process and no thread behind.

    short: with fewer old heartbeats, without the merge, and without the minutes after the last
    check.
    """

    def __init__(
        self, start: Start, minute: float, display: Display, *, short: bool = False
    ) -> None:
        self._start = start
        self._short = short
        self._minute = minute
        self._silence = 2 * minute
        self._display = display
        self._clock = PastClock()
        self._server = LocalServer(clock=self._clock, dynamodb=True)
        self._boards: list[Board] = []
        self._application: Running | None = None

    def run(self) -> None:
        """Raises `DemoFailedError`."""
        with self._server:
            kinesis = self._server.client("kinesis", REGION)
            self._crowd = Crowd(kinesis, self._minute)
            with ExitStack() as ending:
                ending.callback(self._crowd.stop)
                ending.callback(self._stop_application)
                self._course(kinesis)

    def _course(self, kinesis: Any) -> None:
        note, crowd = self._display.note, self._crowd
        self._clock.hours_ago = HOURS
        for stream in STREAMS:
            kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
        note(f"filling the streams {WEB} and {MOBILE} with old heartbeats")
        an_hour = SHORT_HEARTBEATS_AN_HOUR if self._short else HEARTBEATS_AN_HOUR
        past = put_past(kinesis, self._clock, an_hour)
        note(f"{past:,} heartbeats of the last {HOURS} hours and reshards are in the streams")
        crowd.come(_users(1, 20))
        crowd.start()

        self._start_application()
        self._until_right("the board is correct")
        note(f"shard {split_one(kinesis, WEB)} of {WEB} split; 5 users leave, 5 arrive")
        crowd.go(_users(1, 5))
        crowd.come(_users(21, 25))
        self._until_right("the users who left are evicted, and no others")
        if not self._short:
            note(f"shards {merge_two(kinesis, MOBILE)} of {MOBILE} merged")
            self._pause(self._silence)
            self._until_right("no user was evicted")

        self._stop_application()
        split = split_one(kinesis, MOBILE)
        note(f"application stopped, shard {split} of {MOBILE} split; 5 users leave, 5 come")
        crowd.go(_users(6, 10))
        crowd.come(_users(26, 30))
        self._pause(1.5 * self._silence)
        self._start_application()
        self._until_right("the board is correct")
        if not self._short:
            self._pause(self._silence)
            self._until_right("the board stays correct")
        for stream in STREAMS:
            shards = ", ".join(short(shard) for shard in open_shards(kinesis, stream))
            note(f"open shards of {stream}: {shards}")

    def _start_application(self) -> None:
        self._board = Board(self._silence)
        self._boards.append(self._board)
        self._application = self._start(endpoint=self._server.endpoint_url, board=self._board)
        self._display.note("application started")

    def _stop_application(self) -> None:
        application, self._application = self._application, None
        if application is not None:
            application.stop()

    def verify(self) -> None:
        """Check the whole run. Raises `DemoFailedError`."""
        print_ = self._display.console.print
        by_stream = Counter[str]()
        for board in self._boards:
            by_stream.update(board.heartbeats)
        old = sum(board.old for board in self._boards)
        evictions = [eviction for board in self._boards for eviction in board.evictions]
        wrong = [
            eviction
            for eviction in evictions
            if not was_silent(self._crowd.sent_by(eviction.user), eviction, self._silence)
        ]
        counts = " and ".join(f"{by_stream[stream]:,} of {stream}" for stream in STREAMS)
        print_(f"{by_stream.total():,} heartbeats processed, {old} of them old")
        print_(f"they are {counts}")
        print_(f"{len(evictions)} evictions, {len(wrong)} of them wrong")
        if not all(by_stream[stream] for stream in STREAMS):
            raise DemoFailedError("No heartbeat of one of the streams was processed.")
        if old:
            raise DemoFailedError(f"{old} old heartbeats were processed.")
        if wrong:
            raise DemoFailedError(f"Users were evicted who had not been silent: {wrong}")
        if not {eviction.user for eviction in evictions} >= set(_users(1, 5)):
            raise DemoFailedError(f"Users who left were not evicted. Evicted: {evictions}")

    def _until_right(self, then: str) -> None:
        """Wait until the active users are exactly the present ones."""

        def is_right() -> bool:
            return self._board.active.keys() == self._crowd.beating

        since = time.monotonic()
        while not is_right():
            if time.monotonic() - since > STALLED_SECONDS + 4 * self._minute:
                wrong = sorted(self._board.active.keys() ^ self._crowd.beating)
                raise DemoFailedError(
                    f"For too long, these users were active or present, but not both: {wrong}"
                )
            self._show()
        self._display.note(f"{then}: {len(self._crowd.beating)} users are active")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._show()

    def _show(self) -> None:
        if self._crowd.failure is not None:
            raise DemoFailedError(f"The users failed: {self._crowd.failure!r}")
        if self._application is not None:
            self._application.check()
        self._display.show(self._board, self._crowd.beating, self._minute)
        time.sleep(0.05)


def _users(first: int, last: int) -> list[str]:
    return [f"user-{number:02}" for number in range(first, last + 1)]
