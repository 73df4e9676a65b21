"""A subscription whose connection a selector watches: its bytes, its end, and behind a proxy."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError, ResponseStreamingError

from sparkinesis.stream.address import CredentialSource, StreamAddress
from sparkinesis.stream.calls import caller
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.by_botocore import PumpedBody
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from sparkinesis.stream.calls.direct.http_answer import StreamedBody
from sparkinesis.stream.calls.session import client_of, open_session
from sparkinesis.stream.calls.subscription import Subscription
from sparkinesis.stream.calls.subscription import subscribe as calls_subscribe
from sparkinesis.stream.position import TRIM_HORIZON, starting_position
from tests.certificates import self_signed, serving_context
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.integration.stream.conftest import CONSUMER_ARN, SHARD
from tests.pace import seconds
from tests.scripted import DATE_MS, Answer, Script, serving

CHUNKED = {"transfer-encoding": "chunked"}
END = b"0\r\n\r\n"
SHORT = records_event([1], 1)
LONG = records_event(range(2000), 1999)
PATIENCE = 20.0


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def connected(
    start: bytes = b"", patience: float = PATIENCE, **options: Any
) -> Iterator[tuple[Subscription, socket.socket]]:
    """A subscription, and the service's end of its connection."""
    ours, theirs = socket.socketpair()
    ours.settimeout(patience)
    with theirs:
        body = StreamedBody("http://test", ours, start, CHUNKED)
        subscription = Subscription(body, 7, **options)
        yield subscription, theirs
        subscription.close()
        subscription.next_event()


def is_readable(watched: Subscription, seconds: float = 0.0) -> bool:
    return bool(select.select([watched], [], [], seconds)[0])


def numbers(subscription: Subscription) -> list[str]:
    received = iter(subscription.next_event, None)
    return [record.sequence_number for one in received if one for record in one.event.records]


@pytest.mark.parametrize("event", [SHORT, LONG], ids=["short", "long"])
def test_nothing_is_left_of_an_event_for_a_selector(event: bytes) -> None:
    """Not even the line end behind the HTTP chunk, for which a thread would wait in vain."""
    with connected() as (subscription, service):
        for _ in range(3):
            assert not is_readable(subscription)
            writer = threading.Thread(target=service.sendall, args=(chunk(event),))
            writer.start()
            assert is_readable(subscription, PATIENCE)
            assert subscription.next_event() is not None
            writer.join()
            assert (subscription.has_data, is_readable(subscription)) == (False, False)


def test_a_line_end_that_comes_late_does_not_hold_an_event_up() -> None:
    with connected() as (subscription, service):
        for at_end in (b"", chunk(SHORT)[-2:]):
            service.sendall(at_end + chunk(SHORT)[:-2])
            assert subscription.next_event() is not None


def test_two_events_that_arrive_together_need_one_look_of_a_selector() -> None:
    with connected() as (subscription, service):
        service.sendall(chunk(SHORT) + chunk(SHORT) + END)
        seen = [(subscription.has_data, is_readable(subscription))]
        while subscription.next_event() is not None:
            seen.append((subscription.has_data, is_readable(subscription)))
        assert seen == [(False, True), (True, False), (True, False)], "and the end"


def pieces(data: bytes, size: int) -> Sequence[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [3, 100, 4096])
def test_events_are_whole_however_chunks_and_packets_cut_them(size: int) -> None:
    events = INITIAL_RESPONSE + SHORT + records_event([2, 3], 3) + SHORT
    data = b"".join(map(chunk, pieces(events, size))) + b"0\r\nx-trailer: 1\r\n\r\n"
    for cut in range(0, len(data), 1 + len(data) // 150):
        with connected(data[:cut]) as (subscription, service):
            service.sendall(data[cut:])
            assert numbers(subscription) == ["1", "2", "3", "1"]


@pytest.mark.parametrize(
    "data",
    [
        chunk(SHORT)[:-20],
        chunk(SHORT[:-20]),
        b"xyz\r\n" + SHORT,
        b"-5\r\n" + SHORT,
        b"0x5\r\n" + SHORT,
        b"\r\n" + SHORT,
        b"5\r\n" + SHORT,
        b"1" * 5000,
    ],
    ids=["cut", "cut-between-chunks", "word", "negative", "hex", "empty", "too-long", "endless"],
)
def test_a_broken_connection_is_an_error(data: bytes) -> None:
    with connected() as (subscription, service):
        service.sendall(data)
        service.shutdown(socket.SHUT_WR)
        with pytest.raises(ResponseStreamingError):
            subscription.next_event()
        assert subscription.next_event() is None
        assert subscription.fileno() == -1


def test_close_wakes_a_selector_and_keeps_the_descriptor_for_it() -> None:
    """Else another connection could get the number while the selector still has it."""
    with connected() as (subscription, service):
        number = subscription.fileno()
        woken: list[bool] = []
        watcher = threading.Thread(target=lambda: woken.append(is_readable(subscription, PATIENCE)))
        watcher.start()
        subscription.close()
        watcher.join()
        assert woken == [True]
        assert subscription.fileno() == number
        assert subscription.has_data
        assert service.recv(1) == b""
        assert subscription.next_event() is None
        assert subscription.fileno() == -1


def test_close_of_one_that_nobody_watches_closes_the_descriptor() -> None:
    with connected() as (subscription, service):
        subscription.close()
        assert service.recv(1) == b""
        assert subscription.fileno() == -1


def subscribe(endpoint: str) -> Subscription:
    address = StreamAddress("s", None, "us-east-1", endpoint)
    return StreamClient(address).subscribe(CONSUMER_ARN, SHARD, TRIM_HORIZON)


def test_a_new_subscription_is_quiet_until_its_first_event(script: Script) -> None:
    """The first message of the service is no event, and comes at once."""
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE], "hold"))
    subscription = subscribe(script.endpoint)
    assert script.held.acquire(timeout=PATIENCE)
    assert not subscription.has_data
    assert not is_readable(subscription)
    subscription.close()
    assert script.gone.acquire(timeout=PATIENCE)
    assert subscription.next_event() is None


def test_a_server_that_begins_with_an_event(script: Script) -> None:
    script.on("SubscribeToShard", Answer([SHORT, records_event([2], 2)]))
    subscription = subscribe(script.endpoint)
    assert subscription.has_data
    assert numbers(subscription) == ["1", "2"]


@pytest.fixture
def behind_proxy(script: Script, monkeypatch: pytest.MonkeyPatch) -> Script:
    """A script that the proxy follows; the service has another name."""
    monkeypatch.setenv("HTTP_PROXY", script.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr(caller, "_clients", {})
    return script


@pytest.mark.parametrize(
    ("ends", "error"), [("end", None), ("close", ResponseStreamingError)], ids=["end", "close"]
)
def test_behind_a_proxy_a_selector_sees_the_same(
    behind_proxy: Script, ends: str, error: type[Exception] | None
) -> None:
    cut = [] if error is None else [LONG[:500]]
    behind_proxy.on("SubscribeToShard", Answer([INITIAL_RESPONSE, SHORT, LONG, *cut], ends))
    subscription = subscribe("http://kinesis.test")
    assert isinstance(subscription._body, PumpedBody)
    for count in (1, 2000):
        assert subscription.has_data or is_readable(subscription, PATIENCE)
        received = subscription.next_event()
        assert received is not None
        assert len(received.event.records) == count
    if error is None:
        assert subscription.next_event() is None
    else:
        with pytest.raises(error):
            subscription.next_event()


def check_close_ends_a_read(script: Script, endpoint: str) -> None:
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE, SHORT], "hold"))
    subscription = subscribe(endpoint)
    assert subscription.next_event() is not None
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(subscription.next_event()))
    reader.start()
    subscription.close()
    reader.join(PATIENCE)
    assert answers == [None]
    assert script.gone.acquire(timeout=PATIENCE)


def test_close_behind_a_proxy_ends_the_connection_and_a_read(behind_proxy: Script) -> None:
    check_close_ends_a_read(behind_proxy, "http://kinesis.test")


def test_close_ends_a_read_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times: it meets the reader in another place each time."""
    file = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    with serving(serving_context(file)) as service:
        for _ in range(10):
            check_close_ends_a_read(service.begin(), service.endpoint)


def test_silence_is_a_timeout() -> None:
    with (
        connected(patience=0.05) as (subscription, _),
        pytest.raises(ReadTimeoutError, match="http://test"),
    ):
        subscription.next_event()


def test_the_read_timeout_of_a_client_is_that_of_its_subscriptions() -> None:
    with serving() as service:
        script = service.begin()
        script.on("SubscribeToShard", Answer([INITIAL_RESPONSE], "hold"))
        direct = DirectClient(
            lambda: open_session(CredentialSource(), "us-east-1", script.endpoint),
            lambda session: client_of(session, "kinesis", script.endpoint, read_timeout=0.3),
            {"SubscribeToShard": lambda answer: {"Body": answer.stream}},
            streamed={"SubscribeToShard"},
            most_idle=1,
            read_timeout=0.3,
            bounds={},
        )
        start = starting_position(TRIM_HORIZON, inclusive=False)
        subscription = calls_subscribe(direct, CONSUMER_ARN, SHARD, start, lambda _: DATE_MS)
        with pytest.raises(ReadTimeoutError):
            subscription.next_event()


@pytest.mark.parametrize(("patience", "longest"), [(20.0, 20.0), (100.0, 60.0)])
def test_the_next_event_has_a_minute(patience: float, longest: float) -> None:
    """However patient a read is."""
    with connected(patience=patience) as (subscription, service):
        service.sendall(chunk(SHORT))
        assert subscription.next_event() is not None
        wait = subscription._body._socket.gettimeout()
        assert wait is not None
        assert longest - 5 < wait <= longest


def test_each_event_is_told_before_it_is_returned() -> None:
    told: list[int] = []

    def tell(event: Any) -> None:
        told.append(len(event.records))

    with connected(on_event=tell) as (subscription, service):
        assert subscription.service_time_ms == 7
        service.sendall(chunk(INITIAL_RESPONSE) + chunk(SHORT) + chunk(records_event([2, 3], 3)))
        for count in (1, 2):
            received = subscription.next_event()
            assert received is not None
            assert len(received.event.records) == told[-1] == count
    assert told == [1, 2]


def test_an_event_that_comes_byte_by_byte_ends_the_subscription_in_time() -> None:
    is_over = threading.Event()

    def drip() -> None:
        for _ in range(600):
            if is_over.wait(0.01):
                return
            service.sendall(b"0")  # the size of a chunk

    dripping = threading.Thread(target=drip)
    began = time.monotonic()
    with connected(patience=30, longest_event=0.1) as (subscription, service):
        dripping.start()
        with pytest.raises(ReadTimeoutError, match="http://test"):
            subscription.next_event()
        took = time.monotonic() - began
        is_over.set()
        dripping.join()
    assert took < seconds(3.0)
