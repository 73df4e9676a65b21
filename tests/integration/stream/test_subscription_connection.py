"""The connection of a subscription: over TLS, as the service's are, and when nothing comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ReadTimeoutError, ResponseStreamingError

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.client import DirectClient
from sparkinesis.stream.calls.session import client_of, open_session
from sparkinesis.stream.calls.subscription import Subscription
from sparkinesis.stream.calls.subscription import subscribe as calls_subscribe
from sparkinesis.stream.credentials import CredentialSource
from sparkinesis.stream.position import TRIM_HORIZON, starting_position
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.integration.stream.direct.certificates import self_signed, serving_context
from tests.scripted import DATE_MS, Answer, Script, Scripted, serving

STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
SHARD = "shardId-000000000000"
CONSUMER_ARN = f"{STREAM_ARN}/consumer/c:1790000000"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def service(certificate: Path) -> Iterator[Scripted]:
    with serving(serving_context(certificate)) as running:
        yield running


@pytest.fixture
def script(service: Scripted, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    return service.begin()


def subscribe(script: Script) -> Subscription:
    address = StreamAddress("s", STREAM_ARN, "us-east-1", script.endpoint)
    return StreamClient(address).subscribe(CONSUMER_ARN, SHARD, TRIM_HORIZON)


@pytest.mark.parametrize("turn", range(10))
def test_closing_ends_a_read_over_tls(script: Script, turn: int) -> None:
    """Ten times: it meets the reader in another place each time."""
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE, records_event([1], 1)], "hold"))
    subscription = subscribe(script)
    assert subscription.next_event() is not None
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(subscription.next_event()))
    reader.start()
    subscription.close()
    reader.join(timeout=10)
    assert answers == [None]
    assert script.gone.acquire(timeout=10)


def test_a_connection_that_broke_over_tls(script: Script) -> None:
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE, records_event([1], 1)[:50]], "close"))
    subscription = subscribe(script)
    with pytest.raises(ResponseStreamingError):
        subscription.next_event()
    assert subscription.next_event() is None


def test_a_silent_connection_is_given_up(script: Script) -> None:
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE], "hold"))
    session = open_session(CredentialSource(), "us-east-1", script.endpoint)
    client = client_of(session, "kinesis", script.endpoint, read_timeout=0.3)
    direct = DirectClient(
        client,
        session,
        {"SubscribeToShard": lambda answer: {"Body": answer.stream}},
        streamed={"SubscribeToShard"},
        most_idle=1,
    )
    start = starting_position(TRIM_HORIZON, inclusive=False)
    subscription = calls_subscribe(direct, CONSUMER_ARN, SHARD, start, lambda _: DATE_MS)
    with pytest.raises(ReadTimeoutError):
        subscription.next_event()
    assert script.gone.acquire(timeout=10)
