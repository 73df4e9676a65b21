"""Whoever connects to a fleet's driver and whatever is said: refused, and others go on."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import random
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.fleet.channel.channel import MAX_MESSAGE, Channel, connect_to_driver
from sparkinesis.fleet.channel.control_server import ControlServer, Disconnected
from sparkinesis.fleet.channel.messages import (
    Hello,
    Leaving,
    Ping,
    Report,
    decode_for_driver,
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
        for decode in (decode_for_driver, decode_for_worker):
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


def stranger(driver: ControlServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", driver.port))
    connection.settimeout(PATIENCE)
    return connection


def worker(driver: ControlServer) -> Channel:
    return connect_to_driver("127.0.0.1", driver.port, CREDENTIALS)


def test_strangers_are_refused_and_who_was_let_in_goes_on(
    driver: ControlServer, said: queue.Queue[tuple[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    mine = worker(driver)
    mine.send(encode(HELLO))
    assert said.get(timeout=PATIENCE) == ("w1", HELLO)
    rng = random.Random(1)
    with caplog.at_level(logging.WARNING):
        for n in range(40):
            with stranger(driver) as connection, contextlib.suppress(OSError):
                connection.sendall(rng.randbytes(rng.choice([0, 1, 63, 64, 65, 5000])))
                if n % 2:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass
    assert all(record.exc_info is None for record in caplog.records)
    mine.send(encode(Report((), 5)))
    assert said.get(timeout=PATIENCE) == ("w1", Report((), 5))
    driver.send("w1", Ping())
    assert isinstance(decode_for_worker(mine.receive()), Ping)
    mine.close()


@pytest.mark.parametrize(
    "message",
    [b"", b"\xc1", NOT_UTF8, b"\x81" * 100_000, encode(Ping()), os.urandom(64)],
    ids=["nothing", "no such type", "not UTF-8", "deep", "a driver's", "noise"],
)
def test_a_worker_that_talks_nonsense_is_disconnected_and_no_other(
    driver: ControlServer, said: queue.Queue[tuple[str, Any]], message: bytes
) -> None:
    other, mad = worker(driver), worker(driver)
    other.send(encode(msgspec.structs.replace(HELLO, worker_id="other")))
    assert said.get(timeout=PATIENCE)[0] == "other"
    mad.send(encode(HELLO))
    assert said.get(timeout=PATIENCE)[0] == "w1"
    mad.send(message)
    assert said.get(timeout=PATIENCE) == ("w1", Disconnected("w1"))
    other.send(encode(Report((), 5)))
    assert said.get(timeout=PATIENCE) == ("other", Report((), 5))
    other.close()
    mad.close()


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
        assert said.get(timeout=PATIENCE) == ("w1", Disconnected("w1"))
        assert tracemalloc.get_traced_memory()[1] < 4 * 1_048_576
    finally:
        tracemalloc.stop()
    too_long = worker(driver)
    too_long.send(encode(HELLO))
    said.get(timeout=PATIENCE)
    too_long._connection.sendall(struct.pack(">I", MAX_MESSAGE + 1))
    assert said.get(timeout=PATIENCE) == ("w1", Disconnected("w1"))
    assert read(too_long._connection, 1) == b""
    mine.close()
    too_long.close()
