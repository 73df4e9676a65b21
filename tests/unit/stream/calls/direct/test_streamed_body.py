"""Whether a read of a socket would wait."""

from __future__ import annotations

import select
import socket

import pytest

from sparkinesis.stream.calls.direct.streamed_body import is_readable


@pytest.mark.parametrize("has_poll", [True, False])
def test_a_socket_is_readable_if_a_read_would_not_wait(
    monkeypatch: pytest.MonkeyPatch, *, has_poll: bool
) -> None:
    """Windows has no poll."""
    if not has_poll:
        monkeypatch.delattr(select, "poll")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_readable(ours)
        assert not is_readable(ours.fileno(), milliseconds=1)
        theirs.send(b"x")
        assert is_readable(ours)
        ours.recv(1)
        theirs.close()
        assert is_readable(ours)
    assert is_readable(ours), "it is closed"
    assert is_readable(-1)
