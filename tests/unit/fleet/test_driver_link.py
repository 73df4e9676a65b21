"""Both ends of the control channel, over real connections that break."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.errors import FleetError
from sparkinesis.fleet.channel import ChannelClosedError
from sparkinesis.fleet.channel_tls import WorkerCredentials
from sparkinesis.fleet.executor_worker import DriverLink
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ShutDown,
    Start,
    encode,
)
from tests.pace import eventually
from tests.unit.fleet.wire import (
    CREDENTIALS,
    OTHER_RUN,
    PATIENCE,
    Driver,
    hello,
    in_thread,
    listening,
    port_of,
    read,
)


def expect_again(driver: Driver) -> Hello:
    """A worker may reconnect before the server notices the end of its old connection."""
    _, what = driver.next()
    if isinstance(what, Disconnected):
        _, what = driver.next()
    assert isinstance(what, Hello), what
    return what


class Worker:
    """A driver link, and the messages that it received."""

    def __init__(
        self,
        port: int,
        lost_after: float = PATIENCE,
        *,
        says: Callable[[], Hello] = hello,
        credentials: WorkerCredentials = CREDENTIALS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        self.link = DriverLink(
            "127.0.0.1", port, credentials, says, self.heard.put, lost_after=lost_after, clock=clock
        )


@contextlib.contextmanager
def joined(driver: Driver, lost_after: float = 2.0) -> Iterator[Worker]:
    worker = Worker(driver.control.port, lost_after)
    worker.link.open()
    try:
        assert driver.expect(Hello) == hello()
        yield worker
    finally:
        worker.link.close()


def test_both_sides_hear_each_other_in_order(driver: Driver) -> None:
    with joined(driver) as worker:
        for count in range(20):
            worker.link.send(Report((), count))
            driver.control.send(ShutDown(float(count)), "w")
        assert [driver.expect(Report).records for _ in range(20)] == list(range(20))
        heard = [worker.heard.get(timeout=PATIENCE).timeout for _ in range(20)]
        assert heard == list(range(20))


def test_a_ping_is_a_sign_of_life_and_nothing_more(driver: Driver) -> None:
    now = [0.0]
    worker = Worker(driver.control.port, 10.0, clock=lambda: now[0])
    worker.link.open()
    driver.expect(Hello)
    now[0] = 11.0
    assert worker.link.why_lost()
    driver.control.send(Ping())
    driver.control.send(Start())
    assert worker.heard.get(timeout=PATIENCE) == Start(), "the ping is not handed on"
    assert worker.link.why_lost() is None
    worker.link.close()


def test_a_link_that_is_closed_is_told_of_once(driver: Driver) -> None:
    with joined(driver) as worker:
        worker.link.send(Ended(True))
        worker.link.close()
        assert driver.expect(Ended) == Ended(True)
        driver.expect(Disconnected)
    assert driver.events.empty()
    driver.control.send(Start(), "w")  # to nobody: no error


def test_a_dropped_worker_comes_again(driver: Driver) -> None:
    with joined(driver) as worker:
        for connections in (2, 3):
            driver.control.drop("w")
            expect_again(driver)
            driver.control.send(Start(), "w")
            assert worker.heard.get(timeout=PATIENCE) == Start()
            assert worker.link.connections == connections
        worker.link.send(Report((), 7))
        assert driver.expect(Report).records == 7


def test_a_driver_that_comes_back_on_its_port_has_its_workers_again() -> None:
    driver = Driver()
    port = driver.control.port
    with joined(driver, PATIENCE) as worker:
        driver.control.close()
        driver.expect(Disconnected)
        worker.link.send(Leaving("it was told so"))
        again = Driver(port)
        again.expect(Hello)
        assert again.expect(Leaving).why == "it was told so", "said while there was no driver"
        assert worker.link.why_lost() is None
        again.control.close()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["gone", "of another run"])
def test_a_driver_that_never_comes_back_is_lost(
    drivers: Callable[..., Driver], is_replaced: bool
) -> None:
    driver = drivers()
    port = driver.control.port
    with joined(driver, 0.5) as worker:
        driver.control.close()
        driver.expect(Disconnected)
        on_its_port = drivers(port=port, identity=OTHER_RUN) if is_replaced else driver
        eventually(lambda: worker.link.why_lost() is not None)
        assert on_its_port.events.empty()
        assert not worker.link.send(Report((), 1))
        worker.link.send_last(lambda: Ended(True))  # returns: there is nobody to wait for


def test_a_leaving_that_is_said_while_a_connection_is_made_is_not_lost(driver: Driver) -> None:
    saying = threading.Event()

    def says() -> Hello:
        if saying.is_set():
            worker.link.send(Leaving("now"))
        return hello()

    worker = Worker(driver.control.port, says=says)
    worker.link.open()
    driver.expect(Hello)
    saying.set()
    driver.control.drop("w")
    expect_again(driver)
    assert driver.expect(Leaving).why == "now"
    worker.link.close()


def test_a_driver_that_is_not_there_at_first_is_waited_for() -> None:
    with listening() as listener:
        port = port_of(listener)
    worker = Worker(port, PATIENCE)
    opening = in_thread(worker.link.open)
    driver = Driver(port)
    driver.expect(Hello)
    opening.result(PATIENCE)
    worker.link.close()
    driver.control.close()


# --- the driver's end


def test_a_second_connection_of_a_worker_replaces_the_first(driver: Driver) -> None:
    first = driver.join()
    driver.expect(Hello)
    second = driver.join()
    driver.expect(Hello)
    with pytest.raises(ChannelClosedError):
        first.receive()
    first.close()
    driver.control.send(Start(), "w")
    said = in_thread(second.receive)
    try:
        assert said.result(PATIENCE) == encode(Start()), "to the one that is there"
    finally:
        second.close()
    driver.expect(Disconnected)
    assert driver.events.empty(), "the first one's end is nobody's"


def test_events_of_a_worker_that_comes_and_goes_are_in_order(driver: Driver) -> None:
    reported = []
    for count in range(20):
        channel = driver.join()
        while not isinstance(event := driver.next()[1], Hello):
            reported += [event.records] if isinstance(event, Report) else []
        channel.send(encode(Report((), count)))
        channel.close()
    while not isinstance(event := driver.next()[1], Disconnected):
        reported += [event.records] if isinstance(event, Report) else []
    assert reported == sorted(reported), "what came late was handed on after newer things"
    assert reported[-1] == 19, "the last connection was not followed by another"
    assert driver.events.empty()


@pytest.mark.parametrize("first", [Report((), 1), Ended(True), Ping()])
def test_who_does_not_say_hello_first_is_sent_away(driver: Driver, first: Any) -> None:
    channel = driver.join(first)
    with pytest.raises(ChannelClosedError):
        channel.receive()
    channel.close()
    assert driver.events.empty()


def test_a_message_that_is_none_ends_the_connection(driver: Driver) -> None:
    channel = driver.join()
    driver.expect(Hello)
    channel.send(b"\xc1 no message")
    driver.expect(Disconnected)
    with pytest.raises(ChannelClosedError):
        channel.receive()
    channel.close()


def test_closing_ends_connections_and_threads_and_frees_the_port() -> None:
    before = set(threading.enumerate())
    driver = Driver()
    silent = driver.connect()
    channel = driver.join()
    driver.expect(Hello)
    driver.control.close()
    with pytest.raises(ChannelClosedError):
        channel.receive()
    channel.close()
    assert read(silent, 1) == b""
    silent.close()
    driver.expect(Disconnected)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread
    Driver(driver.control.port).control.close()


def test_a_port_that_is_taken_is_named(driver: Driver) -> None:
    with pytest.raises(FleetError, match=str(driver.control.port)):
        Driver(driver.control.port)
