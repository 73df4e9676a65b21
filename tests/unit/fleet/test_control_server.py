"""Connections that do not authenticate are closed, and keep no worker out."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from sparkinesis.fleet.channel import Channel
from sparkinesis.fleet.control_server import (
    MAX_PENDING,
    MAX_PER_ADDRESS,
    SILENCE_TIMEOUT,
    PendingConnection,
    PendingConnections,
    connection_to_evict,
)
from sparkinesis.fleet.executor_worker import DriverLink
from sparkinesis.worker.supervision.control_messages import Hello, Report
from tests.unit.fleet.wire import CREDENTIALS, PATIENCE, Driver, hello, read


def pending(
    since: float, address: str = "a", *, has_spoken: bool = False
) -> PendingConnection[str]:
    return PendingConnection(f"{address}{since:g}", address, since, has_spoken)


def gone(*known: PendingConnection[str], newest: str = "a", per_address: int = 3) -> str | None:
    found = connection_to_evict([*known], pending(100.0, newest), limit=4, per_address=per_address)
    return found.connection if found else None


# --- who has to go


def test_nobody_has_to_go_while_there_is_room() -> None:
    assert gone() is None
    assert gone(pending(1), pending(2)) is None
    assert gone(pending(1), pending(2), pending(3, "b")) is None


def test_the_one_that_is_silent_for_longest_goes() -> None:
    four = [pending(3), pending(1, "b"), pending(2, "c"), pending(4, "d")]
    assert gone(*four) == "b1"


def test_too_many_of_an_address_are_at_the_cost_of_that_address() -> None:
    three = [pending(3), pending(2), pending(4)]
    assert gone(pending(1, "b"), *three) == "a2"
    assert gone(pending(1, "b"), *three, newest="b") == "b1", "there are too many in all"


def test_who_has_spoken_goes_last() -> None:
    """A worker that has just begun its handshake is evicted last."""
    begun = [pending(n, has_spoken=True) for n in (1, 2)]
    assert gone(*begun, pending(50)) == "a50"
    assert gone(*begun, pending(3, has_spoken=True)) == "a1", "or slow ones would keep others out"


def test_the_newest_is_never_the_one() -> None:
    known = [pending(n, has_spoken=True) for n in range(4)]
    newest = pending(100)
    assert connection_to_evict([*known, newest], newest, limit=4, per_address=9) is known[0]


def test_a_silent_one_has_its_time_and_no_more() -> None:
    connections: PendingConnections[str] = PendingConnections()
    assert connections.time_left(0.0) is None
    first, second = pending(10.0), pending(11.0)
    for each in (first, second):
        assert connections.add(each) is None
    assert connections.time_left(12.0) == 1.0
    assert connections.overdue(12.9) == []
    assert connections.overdue(13.0) == [first]
    first.has_spoken = True
    assert connections.overdue(13.5) == []
    assert connections.overdue(14.0) == [second]
    for _ in range(2):
        connections.remove(second)
    assert connections.time_left(14.0) is None, "who has spoken has another deadline"
    assert connections.clear() == [first]


# --- over real connections


def join(driver: Driver, worker: str) -> Channel:
    """Connect a worker; when this returns, the server has accepted all earlier connections."""
    channel = driver.join(hello(worker))
    driver.expect(Hello, worker)
    return channel


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


class Flood:
    """Clients that send nothing, and reconnect when they are evicted."""

    def __init__(self, driver: Driver, count: int) -> None:
        self.reconnects = 0
        self.is_in_full_swing = threading.Event()
        self.has_reconnected = threading.Event()
        self._driver = driver
        self._ended = threading.Event()
        self.connections = [driver.connect() for _ in range(count)]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for at, connection in enumerate(self.connections):
                if not is_open(connection):
                    connection.close()
                    with contextlib.suppress(OSError):
                        self.connections[at] = self._driver.connect()
                    self.reconnects += 1
                    self.has_reconnected.set()
                    if self.reconnects == 2 * MAX_PENDING:
                        self.is_in_full_swing.set()
                if self._ended.is_set():
                    return

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        for connection in self.connections:
            connection.close()


def test_silent_strangers_that_come_again_and_again_keep_no_worker_out(
    drivers: Callable[..., Driver],
) -> None:
    """All connections come from one address, as with a local Spark."""
    driver = drivers()
    flood = Flood(driver, 2 * MAX_PENDING)
    links = []
    try:
        assert flood.is_in_full_swing.wait(PATIENCE)
        for number in range(25):
            says = hello(f"w{number}")
            link = DriverLink(
                "127.0.0.1",
                driver.control.port,
                CREDENTIALS,
                lambda says=says: says,  # type: ignore[misc]
                lambda _: None,
                lost_after=PATIENCE,
            )
            link.open()
            links.append(link)
        heard = {driver.next()[0] for _ in links}
        assert heard == {f"w{number}" for number in range(25)}
        flood.has_reconnected.clear()
        assert flood.has_reconnected.wait(PATIENCE), "they are evicted, and reconnect"
        for link in links:
            assert link.send(Report((), 1))
        reports = [driver.next() for _ in links]
        assert {type(what) for _, what in reports} == {Report}, "no worker had to come again"
    finally:
        flood.end()
        for link in links:
            link.close()


def test_silent_strangers_take_no_threads(drivers: Callable[..., Driver]) -> None:
    driver = drivers()
    connections = [driver.connect() for _ in range(MAX_PER_ADDRESS)]
    worker = join(driver, "w")
    serving = [t for t in threading.enumerate() if t.name == "fleet-control" and t.is_alive()]
    mine = [t for t in serving if getattr(t, "_target", None) == driver.control._serve]
    assert len(mine) <= 1, "the worker's"
    worker.close()
    for each in connections:
        each.close()


def test_the_first_bytes_are_due_soon_by_the_clock(drivers: Callable[..., Driver]) -> None:
    now = [1000.0]
    driver = drivers(clock=lambda: now[0])
    silent = driver.connect()
    join(driver, "before").close()
    driver.next()  # it is gone
    now[0] += SILENCE_TIMEOUT - 0.1
    join(driver, "in time").close()
    driver.next()
    assert is_open(silent)
    now[0] += 0.2
    join(driver, "too late").close()
    driver.next()
    silent.setblocking(True)
    silent.settimeout(PATIENCE)
    assert silent.recv(1) == b"", "it was turned away"
    silent.close()


def client_hello() -> bytes:
    """Return the first message of TLS, made by Python's ssl."""
    import ssl  # noqa: PLC0415

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="driver")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("share", [0.5, 1.0], ids=["half a hello", "a whole hello"])
def test_strangers_that_stop_within_tls_hold_up_nobody(
    drivers: Callable[..., Driver], share: float
) -> None:
    driver = drivers(handshake_timeout=PATIENCE)
    words = client_hello()
    connections = [driver.connect() for _ in range(MAX_PER_ADDRESS + 10)]
    for each in connections:
        with contextlib.suppress(OSError):  # turned away for a newer one
            each.sendall(words[: int(len(words) * share)])
    workers = [join(driver, f"w{number}") for number in range(5)]
    for worker in workers:
        worker.close()
    for each in connections:
        each.close()


def test_a_stranger_that_stops_within_tls_has_to_go(drivers: Callable[..., Driver]) -> None:
    driver = drivers(handshake_timeout=0.5)
    with driver.connect() as connections:
        connections.sendall(client_hello()[:50])
        assert read(connections, 1) == b""


def test_who_is_gone_before_it_spoke_is_forgotten(
    drivers: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    driver = drivers()
    for _ in range(20):
        driver.connect().close()
    join(driver, "w").close()
    assert len(driver.control._entrance.pending) == 0
    assert "Refused" not in caplog.text, "a port that is looked at is no trouble"


def test_a_flood_is_told_of_and_does_not_flood_the_log(
    drivers: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    driver = drivers(clock=lambda: now[0])
    connections = []
    for _ in range(2):
        connections += [driver.connect() for _ in range(MAX_PER_ADDRESS + 50)]
        join(driver, "w").close()
        driver.next()
        now[0] += 61.0
    told = [
        record.getMessage() for record in caplog.records if "did not authenticate" in record.message
    ]
    assert 1 <= len(told) <= 2
    assert f"port {driver.control.port}" in told[0]
    for each in connections:
        each.close()
