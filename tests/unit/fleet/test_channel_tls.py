"""TLS between a fleet's driver and its workers: nobody else can read or answer."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from sparkinesis.fleet.channel import (
    ChannelClosedError,
    accept_worker,
    connect_to_driver,
)
from sparkinesis.fleet.channel_tls import (
    DriverIdentity,
    NotAuthenticatedError,
    worker_context,
)
from sparkinesis.fleet.executor_worker import DriverLink
from sparkinesis.status import Failure
from sparkinesis.worker.supervision.control_messages import Leaving, Report, ShutDown
from tests.unit.fleet.wire import (
    CREDENTIALS,
    IDENTITY,
    PATIENCE,
    SECRET,
    Driver,
    handshake,
    hello,
    in_thread,
    listening,
    port_of,
    read,
)

TRACE = "Traceback (most recent call last):\n  ValueError: card 4111-1111-1111-1111 of Ada\n"


class Proxy:
    """A man in the middle, who records everything and passes it on, or changes it first."""

    def __init__(self, port: int) -> None:
        self.is_changing = threading.Event()
        self.recorded = {"worker": bytearray(), "driver": bytearray()}
        self._port = port
        self._ends: list[socket.socket] = []
        self._passing: list[Any] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = port_of(self._listener)
        in_thread(self._serve)

    def _serve(self) -> None:
        self._ends.append(self._listener.accept()[0])
        self._ends.append(socket.create_connection(("127.0.0.1", self._port)))
        near, far = self._ends
        self._passing = [
            in_thread(self._pass_on, near, far, self.recorded["worker"]),
            in_thread(self._pass_on, far, near, self.recorded["driver"]),
        ]

    def _pass_on(self, source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                record += data
                if self.is_changing.is_set():
                    data = data[:-1] + bytes([data[-1] ^ 1])
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Wait until both sides have closed."""
        for each in self._passing:
            each.result(PATIENCE)
        for each in (self._listener, *self._ends):
            each.close()


def test_what_goes_over_the_wire_is_not_readable(driver: Driver) -> None:
    proxy = Proxy(driver.control.port)
    heard: queue.Queue[Any] = queue.Queue()
    link = DriverLink("127.0.0.1", proxy.port, CREDENTIALS, hello, heard.put, lost_after=PATIENCE)
    link.open()
    assert driver.next() == ("w", hello())
    failure = Failure("3f0c9a", "process_records raised", "ValueError: Ada", TRACE, 1, ("s-7",))
    reported: list[Report | Leaving] = [
        Report((), 5, failures=(failure,)),
        Leaving("because card 4111-1111-1111-1111 was refused"),
    ]
    for message in reported:
        link.send(message)
        assert driver.next() == ("w", message), "it came through the proxy"
    driver.control.send(ShutDown(1234.5), "w")
    assert heard.get(timeout=PATIENCE) == ShutDown(1234.5)
    link.close()
    proxy.close()
    for side, record in proxy.recorded.items():
        assert len(record) > 200, f"the {side}'s words were recorded"
        # Ciphertext is random: a text of two or three bytes is in it now and then.
        texts = (b"ValueError: Ada", b"4111-1111", b"Traceback", b"hello", b"shut down", SECRET)
        for text in texts:
            assert text not in record


def test_a_man_in_the_middle_who_passes_on_to_the_driver_is_refused_by_both(driver: Driver) -> None:
    """The man in the middle uses TLS to either side and passes on the data."""
    with listening() as listener:
        worker = in_thread(connect_to_driver, "127.0.0.1", port_of(listener), CREDENTIALS)
        near, _ = listener.accept()
        # Towards the driver he is a worker without its pass: he can do TLS, and prove nothing.
        far = worker_context(CREDENTIALS.certificate).wrap_socket(driver.connect())
        greeting = far.recv(100)
        assert greeting.startswith(b"sparkinesis-1\n")
        with pytest.raises(ssl.SSLError):
            DriverIdentity.new(SECRET).context.wrap_socket(near, server_side=True)
        near.close()
        assert isinstance(worker.exception(PATIENCE), NotAuthenticatedError)
        far.sendall(bytes(64))
        assert far.recv(100) == b"", "the driver has closed"
        far.close()
    assert driver.events.empty()


def test_a_man_in_the_middle_with_a_certificate_of_his_own_is_refused() -> None:
    """The man in the middle may even know the secret."""
    with handshake(DriverIdentity.new(SECRET), CREDENTIALS) as (impostor, worker):
        refused = worker.exception(PATIENCE)
        assert isinstance(refused, NotAuthenticatedError)
        assert "certificate" in str(refused)
        assert SECRET.hex() not in str(refused)
        assert isinstance(impostor.exception(PATIENCE), NotAuthenticatedError), "heard nothing"


def test_who_does_not_speak_tls_is_refused(driver: Driver) -> None:
    for words in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\x00\x05hello"):
        with driver.connect() as stranger:
            stranger.sendall(words)
            assert b"sparkinesis" not in read(stranger, 1_000), "it is told nothing"
    assert driver.events.empty()


def test_older_tls_is_refused(driver: Driver) -> None:
    context = worker_context(CREDENTIALS.certificate)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with driver.connect() as stranger, pytest.raises(ssl.SSLError):
        context.wrap_socket(stranger)


def test_the_end_of_tls_by_the_book_is_the_end_of_the_connection() -> None:
    """Python's own TLS socket sends close_notify, which ours does not."""
    with listening() as listener:
        near = socket.create_connection(listener.getsockname())
        driver = in_thread(accept_worker, listener.accept()[0], IDENTITY)
        with worker_context(CREDENTIALS.certificate).wrap_socket(near) as secured:
            assert secured.version() == "TLSv1.3"
            assert secured.recv(14) == b"sparkinesis-1\n"
            with contextlib.suppress(OSError):
                secured.unwrap()
            assert isinstance(driver.exception(PATIENCE), ChannelClosedError)


def test_a_changed_byte_is_noticed(driver: Driver) -> None:
    proxy = Proxy(driver.control.port)
    channel = connect_to_driver("127.0.0.1", proxy.port, CREDENTIALS)
    driver_said = in_thread(channel.receive)
    proxy.is_changing.set()
    channel.send(b"report")
    with pytest.raises((ChannelClosedError, NotAuthenticatedError)):
        driver_said.result(PATIENCE)
    channel.close()
    proxy.close()
    assert driver.events.empty()


# --- the certificate and its key


def test_the_private_key_is_on_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file from which Python's ssl reads the key is encrypted and private to the user."""
    seen: list[tuple[int, bytes]] = []

    def watched(context: ssl.SSLContext, certfile: str, password: bytes) -> None:
        path = Path(certfile)
        seen.append((stat.S_IMODE(path.stat().st_mode), path.read_bytes()))
        load(context, certfile, password=password)

    load = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    identity = DriverIdentity.new()
    ((mode, text),) = seen
    assert mode == 0o600
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in text
    assert b"BEGIN PRIVATE KEY" not in text
    assert not list(tmp_path.iterdir())
    assert "PRIVATE" not in repr(identity)


def test_each_run_has_a_secret_and_a_certificate_of_its_own_for_as_long_as_it_lasts() -> None:
    one, two = DriverIdentity.new().credentials, DriverIdentity.new().credentials
    assert one.secret != two.secret
    assert one.certificate != two.certificate
    certificate = x509.load_der_x509_certificate(one.certificate)
    # Executors' clocks may be wrong by years, and a run may last for years.
    assert certificate.not_valid_before_utc.year == 2000
    assert certificate.not_valid_after_utc.year == 9999


def test_a_worker_and_the_core_do_without_that_package() -> None:
    """Only the driver makes a certificate; executors do not need the package."""
    program = """if True:
        import sys
        sys.modules["cryptography"] = None
        import sparkinesis.cli.app, sparkinesis.application
        import sparkinesis.fleet.executor_worker
        from sparkinesis.fleet.channel_tls import worker_context
        worker_context(bytes.fromhex(sys.argv[1]))
        """
    given = [sys.executable, "-c", program, CREDENTIALS.certificate.hex()]
    result = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
