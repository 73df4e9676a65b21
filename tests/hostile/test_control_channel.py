"""Whoever connects to a fleet's driver and whatever is said: refused, and others go on."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.fleet.channel import MAX_MESSAGE, Channel, connect_to_driver
from sparkinesis.fleet.control_server import ControlServer
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Hello,
    Leaving,
    decode_for_supervisor,
    decode_for_worker,
    encode,
)
from tests.examples import examples
from tests.unit.fleet.wire import CREDENTIALS, IDENTITY, PATIENCE, read

HELLO = Hello("w1", 1, 1, 0, "host", 7, 3, 4)
NOT_UTF8 = encode(Leaving("abcdef")).replace(b"abcdef", b"\xff\xfeabcd")


@settings(max_examples=examples(250), deadline=None)
@given(st.binary(max_size=80), st.integers(0, 60), st.binary(max_size=3))
@example(NOT_UTF8, 0, b"")
@example(b"\x81" * 100_000, 0, b"")
@example(b"\xdf\xff\xff\xff\xff", 0, b"")
def test_any_bytes_are_a_message_or_a_decode_error(data: bytes, at: int, put: bytes) -> None:
    mutated = (sound := encode(HELLO))[:at] + put + sound[at + len(put) :]
    for message in (data, mutated):
        for decode in (decode_for_supervisor, decode_for_worker):
            with contextlib.suppress(msgspec.DecodeError):
                assert decode(message) is not None


@pytest.fixture
def said() -> queue.Queue[tuple[str, Any]]:
    return queue.Queue()


@pytest.fixture
def driver(said: queue.Queue[tuple[str, Any]]) -> Iterator[ControlServer]:
    server = ControlServer(
        "127.0.0.1", 0, IDENTITY, lambda who, what: said.put((who, what)), handshake_timeout=2.0
    )
    yield server
    server.close()


def worker(driver: ControlServer) -> Channel:
    return connect_to_driver("127.0.0.1", driver.port, CREDENTIALS)


def test_a_length_that_is_announced_takes_no_memory_before_its_bytes_come(
    driver: ControlServer, said: queue.Queue[tuple[str, Any]]
) -> None:
    mine = worker(driver)
    mine.send(encode(HELLO))
    said.get(timeout=PATIENCE)
    tracemalloc.start()
    try:
        mine._connection.sendall(struct.pack(">I", MAX_MESSAGE))
        mine._connection.sendall(bytes(1000))
        mine._connection.shutdown(socket.SHUT_WR)
        assert said.get(timeout=PATIENCE) == ("w1", Disconnected())
        assert tracemalloc.get_traced_memory()[1] < 4 * 1_048_576
    finally:
        tracemalloc.stop()
    too_long = worker(driver)
    too_long.send(encode(HELLO))
    said.get(timeout=PATIENCE)
    too_long._connection.sendall(struct.pack(">I", MAX_MESSAGE + 1))
    assert said.get(timeout=PATIENCE) == ("w1", Disconnected())
    assert read(too_long._connection, 1) == b""
    mine.close()
    too_long.close()
