"""The active users, tested as their author would: by the kit alone."""

from __future__ import annotations

from examples.active_users.board import Board
from examples.active_users.processor import ActiveUsers, Heartbeats, application
from sparkinesis.testing import Sandbox


def test_a_silent_user_is_evicted_though_the_worker_crashes(kinesis: Sandbox) -> None:
    board = Board(120, kinesis.time)
    users = ActiveUsers(board, 120, kinesis.time)
    app = application(["web"], "eu-west-1", kinesis.endpoint, 60, lambda: Heartbeats(users))
    with kinesis.run(app) as run:
        run.put([("ann", b""), ("bob", b"")])
        run.crash()
        kinesis.advance(60)
        run.put([("ann", b"")])
        kinesis.advance(61)
        assert list(board.active) == ["ann"]
        kinesis.advance(60)
        assert [one.user for one in board.evictions] == ["bob", "ann"]
