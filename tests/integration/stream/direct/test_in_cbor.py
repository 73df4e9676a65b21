"""Pages of large records are asked for in CBOR, from a server that speaks it, and else in JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cbor2
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sparkinesis.errors import SparkinesisError
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.local.encoding.codecs import CborCodec
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls import caller
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff, Retries
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.position import TRIM_HORIZON
from tests.integration.stream.direct.raw_server import Behaviour, RawServer, http, reset

pytestmark = pytest.mark.usefixtures("credentials")

SHARD = "shardId-000000000000"
JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"
MS = 1_790_000_000_123
FIRST = 10**55


def in_json(*sizes: int) -> bytes:
    """A page with records of these sizes."""
    records = [
        {
            "SequenceNumber": str(FIRST + number),
            "ApproximateArrivalTimestamp": MS / 1000,
            "Data": "A" * (size // 3 * 4),
            "PartitionKey": "k",
        }
        for number, size in enumerate(sizes)
    ]
    return json.dumps(
        {"Records": records, "NextShardIterator": "next"}, separators=(",", ":")
    ).encode()


def in_cbor(*sizes: int) -> bytes:
    records = [
        {
            "SequenceNumber": str(FIRST + number),
            "ApproximateArrivalTimestamp": cbor2.CBORTag(1, MS),
            "Data": b"\0" * (size // 3 * 3),
            "PartitionKey": "k",
        }
        for number, size in enumerate(sizes)
    ]
    return cbor2.dumps({"Records": records, "NextShardIterator": "next"})


LARGE, SMALL = (30_000, 30_000, 30_000), (30,)
OPENING = http(in_json(*LARGE))
"""The page after which CBOR is asked for."""
PAGE, IN_JSON = http(in_cbor(*LARGE)), http(in_json(*LARGE))


@pytest.fixture(autouse=True)
def _fresh_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "_clients", {})


def client_of(server: RawServer) -> StreamClient:
    return StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint))


class _Once:
    def call(self, attempt: Callable[[], Any], *_: Any) -> Any:
        return attempt()


ONCE: Any = _Once()
"""No retries."""


def get(client: StreamClient, shard_id: str = SHARD, retry: Retries | None = None) -> Fetched:
    return client.get_records(shard_id, "i", 100, retry=retry or ONCE)


def asked(server: RawServer) -> list[str]:
    """The types of the requests, in turn."""
    return [request.headers["content-type"] for request in server.requests]


def test_large_records_are_asked_for_in_cbor_and_small_ones_in_json(server: RawServer) -> None:
    client = client_of(server)
    small, small_in_cbor = http(in_json(*SMALL)), http(in_cbor(*SMALL))
    server.behaviours.extend([OPENING, PAGE, PAGE, small_in_cbor, small, OPENING, PAGE])
    pages = [get(client).page for _ in range(7)]
    assert asked(server) == [JSON, CBOR, CBOR, CBOR, JSON, JSON, CBOR]
    assert pages[0] == pages[1] == pages[2]
    assert pages[3] == pages[4]


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ((66_000,), CBOR),
        ((64_000,), JSON),
        ((11_000,) * 10, CBOR),
        ((9_000,) * 10, JSON),
        ((30_000,) * 2, JSON),
        ((200,) * 400, JSON),
    ],
)
def test_long_pages_of_long_records_are_asked_for_in_cbor(
    server: RawServer, sizes: tuple[int, ...], kind: str
) -> None:
    client = client_of(server)
    server.behaviours.extend([http(in_json(*sizes)), PAGE if kind == CBOR else IN_JSON])
    get(client)
    get(client)
    assert asked(server) == [JSON, kind]


def test_the_page_after_an_empty_one_is_asked_for_in_json(server: RawServer) -> None:
    client = client_of(server)
    server.behaviours.extend([OPENING, http(in_cbor()), IN_JSON])
    assert [len(get(client).page.records) for _ in range(3)] == [3, 0, 3]
    assert asked(server) == [JSON, CBOR, JSON]


def test_each_shard_has_its_own_records(server: RawServer) -> None:
    client = client_of(server)
    server.behaviours.extend([OPENING, http(in_json(*SMALL)), PAGE])
    get(client, "0")
    get(client, "1")
    get(client, "0")
    assert asked(server) == [JSON, JSON, CBOR]


def test_a_request_in_cbor_says_the_same_and_is_signed(server: RawServer) -> None:
    client = client_of(server)
    server.behaviours.extend([OPENING, PAGE])
    get(client)
    get(client)
    first, second = server.requests
    assert cbor2.loads(second.body) == json.loads(first.body)
    differ = {"content-type", "content-length", "authorization", "x-amz-date"}
    assert {name: found for name, found in second.headers.items() if name not in differ} == {
        name: found for name, found in first.headers.items() if name not in differ
    }
    signed = second.headers["authorization"]
    request = AWSRequest("POST", f"{server.endpoint}/", second.headers, second.body)
    del request.headers["authorization"]
    request.context["timestamp"] = second.headers["x-amz-date"]
    auth = SigV4Auth(Credentials("first", "secret"), "kinesis", "us-east-1")
    names = signed.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    for name in list(request.headers):
        if name.lower() not in names:
            del request.headers[name]
    text = auth.string_to_sign(request, auth.canonical_request(request))
    assert signed.endswith(auth.signature(text, request))


def said(code: str, status: str = "400 Bad Request", kind: str = CBOR) -> Behaviour:
    content = {"__type": code, "message": "it says why"}
    body = cbor2.dumps(content) if kind == CBOR else json.dumps(content).encode()
    return http(body, status, Content_Type=kind)


REFUSALS: dict[str, Behaviour] = {
    "415": http(b"", "415 Unsupported Media Type"),
    "SerializationException": said("SerializationException", kind=JSON),
    "SerializationException in CBOR": said("SerializationException"),
    "UnknownOperationException": said("UnknownOperationException", "404 Not Found"),
}
BROKEN: dict[str, Behaviour] = {
    "bytes that are none": http(b"\xff\xfe"),
    "an empty page": http(b""),
    "CBOR that is cut short": http(in_cbor(*LARGE)[:-9]),
    "times in seconds": http(in_cbor(*LARGE).replace(b"\xc1\x1b", b"\xc1\xfb")),
    "a page of a proxy": http(b"<html/>"),
}
ONLY_AT_FIRST: dict[str, Behaviour] = {
    "500": http(b"<html>\nno\n</html>", "500 Internal Server Error"),
    "501": http(b"no", "501 Not Implemented"),
    "404 of a web server": http(b"<html/>", "404 Not Found"),
    "InvalidArgumentException": said("InvalidArgumentException", kind=JSON),
    "ResourceNotFoundException": said("ResourceNotFoundException"),
}


@pytest.mark.parametrize("how", [*REFUSALS, *BROKEN, *ONLY_AT_FIRST])
def test_a_server_without_cbor_is_asked_for_json_at_once_and_from_then_on(
    server: RawServer, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    client = client_of(server)
    refusal = {**REFUSALS, **BROKEN, **ONLY_AT_FIRST}[how]
    server.behaviours.extend([OPENING, refusal, IN_JSON, IN_JSON])
    first, *others = [get(client).page for _ in range(3)]
    assert others == [first, first]
    assert asked(server) == [JSON, CBOR, JSON, JSON]
    (line,) = [one for one in caplog.messages if "JSON from now on" in one]
    assert line.startswith(server.endpoint)
    assert len(line.splitlines()) == 1
    assert len(line) < 500


def test_a_server_that_answers_in_json_is_asked_for_it(server: RawServer) -> None:
    client = client_of(server)
    server.behaviours.extend([OPENING, IN_JSON, IN_JSON])
    first, *others = [get(client).page for _ in range(3)]
    assert others == [first, first]
    assert asked(server) == [JSON, CBOR, JSON]


def test_a_server_that_hangs_up_on_cbor_is_asked_for_json(server: RawServer) -> None:
    """By the retry, as after any broken connection."""
    client = client_of(server)
    server.behaviours.extend([OPENING, reset(), IN_JSON, IN_JSON])
    pages = [get(client, retry=Backoff(base=0.0)).page for _ in range(3)]
    assert pages == [pages[0]] * 3
    assert asked(server) == [JSON, CBOR, JSON, JSON]


def test_a_broken_connection_says_nothing_of_a_server_with_cbor(server: RawServer) -> None:
    client = client_of(server)
    server.behaviours.extend([OPENING, PAGE, reset(), PAGE])
    for _ in range(3):
        get(client, retry=Backoff(base=0.0))
    assert asked(server) == [JSON, CBOR, CBOR, CBOR]


@pytest.mark.parametrize("how", [*REFUSALS, *BROKEN])
def test_another_server_behind_the_same_address_may_have_no_cbor(
    server: RawServer, how: str
) -> None:
    client = client_of(server)
    refusal = {**REFUSALS, **BROKEN}[how]
    server.behaviours.extend([OPENING, PAGE, refusal, IN_JSON, IN_JSON])
    pages = [get(client).page for _ in range(4)]
    assert pages == [pages[0]] * 4
    assert asked(server) == [JSON, CBOR, CBOR, JSON, JSON]


@pytest.mark.parametrize("how", ONLY_AT_FIRST)
def test_an_error_of_a_server_with_cbor_is_an_error(server: RawServer, how: str) -> None:
    """And later pages are asked for in CBOR again."""
    client = client_of(server)
    server.behaviours.extend([OPENING, PAGE, ONLY_AT_FIRST[how], PAGE])
    get(client)
    get(client)
    with pytest.raises(SparkinesisError):
        get(client)
    get(client)
    assert asked(server) == [JSON, CBOR, CBOR, CBOR]


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "ExpiredIteratorException",
    ],
)
def test_what_befalls_any_call_says_nothing_of_the_encoding(server: RawServer, code: str) -> None:
    client = client_of(server)
    server.behaviours.extend([OPENING, said(code), PAGE])
    get(client)
    with pytest.raises(SparkinesisError):
        get(client)
    get(client)
    assert asked(server) == [JSON, CBOR, CBOR]


def test_what_fails_in_json_too_is_no_refusal(server: RawServer) -> None:
    client = client_of(server)
    denied = said("AccessDeniedException", kind=JSON)
    server.behaviours.extend([OPENING, said("AccessDeniedException"), denied, PAGE])
    get(client)
    with pytest.raises(SparkinesisError, match="it says why"):
        get(client)
    get(client)
    assert asked(server) == [JSON, CBOR, JSON, CBOR]


@pytest.mark.parametrize(
    "code",
    [
        "AccessDeniedException",
        "ExpiredIteratorException",
        "ExpiredTokenException",
        "KMSDisabledException",
        "ProvisionedThroughputExceededException",
        "ResourceNotFoundException",
        "com.amazonaws.kinesis#InternalFailure",
    ],
)
@pytest.mark.parametrize("status", ["400 Bad Request", "500 Internal Server Error"])
def test_an_error_in_cbor_is_the_same_as_in_json(server: RawServer, code: str, status: str) -> None:
    outcomes = []
    client = client_of(server)
    server.behaviours.extend([OPENING, PAGE])
    get(client)
    get(client)
    for kind in (CBOR, JSON):
        if kind == JSON:
            client = client_of(server)
        server.behaviours.append(said(code, status, kind))
        with pytest.raises(SparkinesisError) as error:
            get(client)
        outcomes.append((type(error.value), str(error.value)))
    assert asked(server)[-2:] == [CBOR, JSON]
    assert outcomes[0] == outcomes[1]


def test_a_wrong_clock_is_corrected_by_an_error_in_cbor(server: RawServer) -> None:
    client = client_of(server)
    late = http(
        cbor2.dumps({"__type": "InvalidSignatureException", "message": "late"}),
        "400 Bad Request",
        Date="Mon, 21 Sep 2020 14:13:20 GMT",
    )
    server.behaviours.extend([OPENING, late, PAGE])
    get(client)
    get(client)
    assert asked(server) == [JSON, CBOR, CBOR]
    assert server.requests[-1].headers["x-amz-date"].startswith("20200921T1413")


def test_the_checksum_of_a_page_in_cbor_is_checked(server: RawServer) -> None:
    body = in_cbor(*LARGE)
    right = http(body, x_amz_crc32=str(zlib.crc32(body)))
    client = client_of(server)
    server.behaviours.extend([OPENING, PAGE, right, http(body, x_amz_crc32="7")])
    for _ in range(3):
        get(client)
    with pytest.raises(SparkinesisError, match="checksum"):
        get(client)


def test_behind_a_proxy_all_is_json(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.endpoint)
    client = StreamClient(StreamAddress("s", None, "us-east-1", "http://kinesis.test"))
    server.behaviours.extend([OPENING, IN_JSON])
    pages = [get(client).page for _ in range(2)]
    assert pages[0] == pages[1]
    assert asked(server) == [JSON, JSON]


# The local Kinesis.


@pytest.fixture
def local() -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False, clock=ManualClock(MS)) as running:
        yield running


def test_the_local_kinesis_gives_the_same_records_in_both(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesis: Any = local.client("kinesis")
    kinesis.create_stream(StreamName="s", ShardCount=1)
    sizes = [30_000, 70_000, 1, 300, (1 << 20) - 99, 20_000, 23, 24, 50_000]
    stored = [
        (f"key-{number}" * (number % 9 + 1), bytes([number]) * size)
        for number, size in enumerate(sizes)
    ]
    for key, data in stored:
        kinesis.put_record(StreamName="s", PartitionKey=key, Data=data)
    in_cbor: list[int] = []
    encode = CborCodec._page

    def counted(codec: CborCodec, page: Any) -> bytes:
        in_cbor.append(page.records.count)
        return encode(codec, page)

    monkeypatch.setattr(CborCodec, "_page", counted)
    client = StreamClient(StreamAddress("s", None, "us-east-1", local.endpoint_url))
    iterator = client.shard_iterator(SHARD, TRIM_HORIZON)
    whole = client.get_records(SHARD, iterator, 100)
    again = client.get_records(SHARD, iterator, 100)
    assert in_cbor == [len(stored)]
    assert again.page.records == whole.page.records
    assert [(one.partition_key, one.data) for one in again.page.records] == stored
    assert {one.arrived_ms for one in again.page.records} == {MS}
    assert abs(again.size - sum(len(key) + len(data) for key, data in stored)) < 1000
