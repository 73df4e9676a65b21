"""The authenticated channel over real connections: authentication and integrity."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

import pytest

from sparkinesis.fleet import channel as channel_module
from sparkinesis.fleet.channel import (
    MAX_MESSAGE,
    Channel,
    ChannelClosedError,
    accept_worker,
    authenticated,
    connect_to_driver,
)
from sparkinesis.fleet.channel_tls import (
    SECRET_BYTES,
    NotAuthenticatedError,
    WorkerCredentials,
    tls_as_worker,
)
from tests.unit.fleet.wire import (
    ANSWER,
    CREDENTIALS,
    GREETING,
    IDENTITY,
    LENGTH,
    MAC,
    PATIENCE,
    PROOF,
    channels,
    handshake,
    in_thread,
    listening,
    port_of,
    prove,
    read,
    tapped,
)

OTHER = bytes(SECRET_BYTES)


def secured(connection: socket.socket) -> Channel:
    """Return the worker's end of a connection that the test has made."""
    until = time.monotonic() + PATIENCE
    tls = tls_as_worker(connection, CREDENTIALS.certificate, until)
    return authenticated(tls, CREDENTIALS.secret, until, is_driver=False)


def send_often(channel: Channel, message: bytes) -> None:
    for _ in range(50):
        channel.send(message)


def test_both_directions_at_once_do_not_disturb_each_other() -> None:
    message = os.urandom(100_000)
    with channels() as (driver, worker):
        sending = [in_thread(send_often, each, message) for each in (driver, worker)]
        reading = in_thread(lambda: [worker.receive() for _ in range(50)])
        assert [driver.receive() for _ in range(50)] == [message] * 50
        assert reading.result(PATIENCE) == [message] * 50
        for each in sending:
            each.result(PATIENCE)


def test_messages_of_several_threads_arrive_whole() -> None:
    with channels() as (driver, worker):
        senders = [in_thread(send_often, worker, mark * 5_000) for mark in (b"a", b"b", b"c")]
        received = [driver.receive() for _ in range(150)]
        for sender in senders:
            sender.result(PATIENCE)
    assert sorted(received) == sorted(m * 5_000 for m in (b"a", b"b", b"c") for _ in range(50))


def test_a_connection_may_be_silent_for_longer_than_its_handshake_may_take() -> None:
    """Heartbeats may be minutes apart."""
    with listening() as listener:
        near = socket.create_connection(listener.getsockname())
        worker = in_thread(secured, near)
        far = listener.accept()[0]
        driver = accept_worker(far, IDENTITY, PATIENCE)
        worker.result(PATIENCE)
        assert (near.gettimeout(), far.gettimeout()) == (None, None)
        driver.close()
        near.close()


def test_who_has_another_secret_is_refused_within_tls() -> None:
    with handshake(IDENTITY, WorkerCredentials(OTHER, CREDENTIALS.certificate)) as (driver, worker):
        assert isinstance(driver.exception(PATIENCE), NotAuthenticatedError)
        assert isinstance(worker.exception(PATIENCE), ChannelClosedError)


@pytest.mark.parametrize(
    "proof",
    [lambda answer: bytes(PROOF), lambda answer: answer[-PROOF:]],
    ids=["nothing", "the worker's own"],
)
def test_a_worker_refuses_a_driver_without_the_secret(proof: Callable[[bytes], bytes]) -> None:
    with listening() as listener:
        near = socket.create_connection(listener.getsockname())
        worker = in_thread(prove, near, is_driver=False)
        with listener.accept()[0] as impostor:
            impostor.sendall(b"sparkinesis-1\n" + bytes(32))
            impostor.sendall(proof(read(impostor, ANSWER)))
            assert isinstance(worker.exception(PATIENCE), NotAuthenticatedError)
            assert impostor.recv(1) == b"", "the worker has closed"


@pytest.mark.parametrize("is_secured", [True, False], ids=["TLS", "no TLS"])
def test_a_worker_proves_nothing_to_another_service(is_secured: bool) -> None:
    with listening() as listener:
        port = port_of(listener)
        if is_secured:
            worker = in_thread(connect_to_driver, "127.0.0.1", port, CREDENTIALS)
        else:
            near = socket.create_connection(("127.0.0.1", port))
            worker = in_thread(prove, near, is_driver=False)
        with listener.accept()[0] as service:
            service.sendall(b"220 mail.example.com ESMTP ready\r\n".ljust(GREETING))
            assert isinstance(worker.exception(PATIENCE), NotAuthenticatedError)
            said = read(service, 100_000)
        # TLS's first message, and that it is over.
        assert said.startswith(b"\x16\x03") if is_secured else said == b""
        assert len(said) < 2_000


def test_a_proof_is_good_for_one_connection_only() -> None:
    with tapped() as tap:
        answer = tap.seen[1]
    with listening() as listener, socket.create_connection(listener.getsockname()) as thief:
        driver = in_thread(prove, listener.accept()[0], is_driver=True)
        read(thief, GREETING)
        thief.sendall(answer)
        assert isinstance(driver.exception(PATIENCE), NotAuthenticatedError)
        assert thief.recv(1) == b"", "the driver proves nothing to a thief"


def flipped(frame: bytes, at: int) -> bytes:
    changed = bytearray(frame)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("from_worker", [True, False], ids=["to the driver", "to the worker"])
@pytest.mark.parametrize(
    ("forge", "good"),
    [
        *((lambda one, _, at=at: flipped(one, at), 0) for at in (LENGTH, -MAC - 1, -MAC, -1)),
        (lambda one, _: one + one, 1),
        (lambda one, two: two + one, 0),
        (lambda _, two: two, 0),
    ],
    ids=[*(f"changed at {at}" for at in (LENGTH, -MAC - 1, -MAC, -1)), "twice", "swapped", "lost"],
)
def test_a_message_is_taken_once_unchanged_and_in_its_place(
    *, forge: Callable[[bytes, bytes], bytes], good: int, from_worker: bool
) -> None:
    """``good``: how many are taken before one is refused."""
    with tapped() as tap:
        if from_worker:
            sender, receiver, wire = tap.worker, tap.driver, tap.to_driver
        else:
            sender, receiver, wire = tap.driver, tap.worker, tap.to_worker
        for message in (b"one", b"two"):
            sender.send(message)
        wire.sendall(forge(*(tap.take(from_worker=from_worker) for _ in range(2))))
        for _ in range(good):
            assert receiver.receive() == b"one"
        with pytest.raises(NotAuthenticatedError):
            receiver.receive()


def test_a_message_cannot_be_sent_back() -> None:
    with tapped() as tap:
        tap.worker.send(b"report")
        tap.to_worker.sendall(tap.take(from_worker=True))
        with pytest.raises(NotAuthenticatedError):
            tap.worker.receive()


def test_a_message_of_another_connection_is_refused() -> None:
    with tapped() as first, tapped() as second:
        first.driver.send(b"shut down")
        second.to_worker.sendall(first.take(from_worker=False))
        with pytest.raises(NotAuthenticatedError):
            second.worker.receive()


def test_half_a_message_is_none() -> None:
    with tapped() as tap:
        tap.worker.send(b"report")
        tap.to_driver.sendall(tap.take(from_worker=True)[:-1])
        tap.to_driver.shutdown(socket.SHUT_WR)
        with pytest.raises(ChannelClosedError):
            tap.driver.receive()


def test_a_message_that_is_too_large_is_refused_by_both_ends() -> None:
    with tapped() as tap:
        with pytest.raises(ValueError, match="the limit is"):
            tap.worker.send(bytes(MAX_MESSAGE + 1))
        tap.to_driver.sendall((MAX_MESSAGE + 1).to_bytes(LENGTH, "big"))
        with pytest.raises(NotAuthenticatedError, match="announced"):
            tap.driver.receive()


def test_a_stranger_who_says_a_byte_now_and_then_has_to_go_too() -> None:
    with listening() as listener, socket.create_connection(listener.getsockname()) as stranger:
        driver = in_thread(prove, listener.accept()[0], 0.5, is_driver=True)
        refused = threading.Event()
        driver.add_done_callback(lambda _: refused.set())
        said = 0
        while not refused.wait(0.1) and said < ANSWER - 1:
            try:
                stranger.sendall(b"x")
            except OSError:
                break  # the driver was about to be done
            said += 1
        assert isinstance(driver.exception(PATIENCE), ChannelClosedError)
        assert said < ANSWER - 1, "each byte gave the stranger more time"


def test_who_takes_nothing_cannot_hold_a_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "SEND_TIMEOUT", 1.0)
    with channels() as (_, worker):
        receiving = in_thread(worker.receive)
        with pytest.raises(ChannelClosedError):
            worker.send(bytes(MAX_MESSAGE))  # more than the buffers in between take
        assert isinstance(receiving.exception(PATIENCE), ChannelClosedError), "it was woken"
        with pytest.raises(ChannelClosedError):
            worker.send(b"half of a message is out: nothing may follow")


def test_closing_wakes_both_ends() -> None:
    with channels() as (driver, worker):
        waiting = [in_thread(driver.receive), in_thread(worker.receive)]
        driver.close()
        for each in waiting:
            assert isinstance(each.exception(PATIENCE), ChannelClosedError)
        with pytest.raises(ChannelClosedError):
            driver.send(b"too late")
