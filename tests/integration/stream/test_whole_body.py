"""Pages over HTTP, read in one piece: whole, cut short, late, and with the connection kept."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.answers.whole_body import read_whole_bodies
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.calls.session import open_client
from sparkinesis.stream.credentials import CredentialSource
from tests.scripted import Answer, Script, Scripted, refusal, serving

SHARD = "shardId-000000000000"
RECORD = {"Data": "QUJD", "PartitionKey": "k" * 200_000, "SequenceNumber": "7"}
PAGE = json.dumps({"Records": [RECORD], "NextShardIterator": "n", "MillisBehindLatest": 0}).encode()
PIECES = [PAGE[:1], PAGE[1:70_000], PAGE[70_000:]]
SIZED = Answer(PIECES, length=len(PAGE))


@pytest.fixture(scope="module")
def service() -> Iterator[Scripted]:
    with serving() as scripted:
        yield scripted


@pytest.fixture
def script(service: Scripted) -> Script:
    return service.begin()


@pytest.fixture
def client(service: Scripted) -> StreamClient:
    address = StreamAddress("s", None, "us-east-1", service.endpoint)
    return StreamClient(address, Retry(sleep=lambda _: None))


def fetch(client: StreamClient) -> tuple[list[str], int]:
    fetched = client.get_records(SHARD, "i", 10)
    return [record.sequence_number for record in fetched.page.records], fetched.size


@pytest.mark.parametrize("answer", [SIZED, Answer(PIECES)], ids=["sized", "chunked"])
def test_pages_come_whole_over_one_connection(
    script: Script, client: StreamClient, answer: Answer
) -> None:
    script.on("GetRecords", *[answer] * 3)
    (numbers, size), *others = [fetch(client) for _ in range(3)]
    assert numbers == ["7"]
    assert size == pytest.approx(200_003, abs=100)
    assert others == [(numbers, size)] * 2
    assert len(script.connections) == 1


@pytest.mark.parametrize(
    "broken",
    [
        Answer([PAGE[:100_000]], "close", length=len(PAGE)),
        Answer([PAGE[:100_000]], "reset", length=len(PAGE)),
        Answer([PAGE[:100_000]], "close"),
        Answer([PAGE[:100_000]], "reset"),
        Answer([], "close", length=len(PAGE)),
    ],
    ids=["sized-close", "sized-reset", "chunked-close", "chunked-reset", "sized-empty"],
)
def test_a_page_that_is_cut_short_is_fetched_again(
    script: Script, client: StreamClient, broken: Answer
) -> None:
    script.on("GetRecords", broken, SIZED)
    assert fetch(client)[0] == ["7"]
    assert len(script.of("GetRecords")) == 2


def test_a_refusal_keeps_its_text(script: Script, client: StreamClient) -> None:
    script.on("GetRecords", refusal("InvalidArgumentException", "No such thing."))
    with pytest.raises(ServiceError, match="No such thing"):
        fetch(client)


def raised_by(script: Script, answer: Answer) -> HTTPClientError:
    """The error of a bare client, which waits a tenth of a second for the socket."""
    client = open_client(
        "kinesis", CredentialSource(), "us-east-1", script.endpoint, read_timeout=0.1
    )
    read_whole_bodies(client, "GetRecords")
    script.on("GetRecords", answer)
    with pytest.raises(HTTPClientError) as caught:
        client.get_records(ShardIterator="i")
    client.close()
    return caught.value


def test_errors_are_those_of_botocores_own_reading(script: Script) -> None:
    cut = Answer([PAGE[:100_000]], "close", length=len(PAGE))
    late = Answer([PAGE[:100_000]], "hold", length=len(PAGE))
    assert isinstance(raised_by(script, cut), ConnectionClosedError)
    assert isinstance(raised_by(script, late), ReadTimeoutError)


def test_a_client_without_botocores_session_is_left_alone(script: Script) -> None:
    class Bare:
        """Has no ``meta`` either: to register a handler would fail."""

    read_whole_bodies(Bare(), "GetRecords")
