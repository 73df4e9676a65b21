"""Signatures, each compared with the one that botocore makes."""

from __future__ import annotations

from datetime import datetime, timezone
from unittest import mock

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.calls.direct.signed_request import (
    Signer,
    SigningScope,
    learn,
    parse_authorization,
)

TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
HOSTS = st.sampled_from(
    [
        "https://kinesis.eu-west-1.amazonaws.com/",
        "https://123456789012.data-kinesis.us-east-1.amazonaws.com",
        "http://127.0.0.1:4566",
        "http://[::1]:4566/",
        "https://dynamodb.us-east-1.amazonaws.com:443/",
    ]
)


def signed_by_botocore(
    url: str, keys: Credentials, scope: SigningScope, seconds: float, body: bytes
) -> AWSRequest:
    headers = {
        "X-Amz-Target": "Kinesis.Get",
        "Content-Type": "application/x-amz-json-1.1",
        "User-Agent": "agent",
    }
    request = AWSRequest("POST", url, headers, body)
    now = datetime.fromtimestamp(seconds, timezone.utc)
    auth = SigV4Auth(
        Credentials(keys.access_key, keys.secret_key, keys.token), scope.service, scope.region
    )
    clock = mock.patch("botocore.auth.get_current_datetime", return_value=now.replace(tzinfo=None))
    with clock:
        auth.add_auth(request)
    return request


@given(
    url=HOSTS,
    access_key=TEXT.filter(lambda text: not set(text) & set("/,")),
    secret=TEXT,
    tokens=st.tuples(st.none() | TEXT, st.none() | TEXT),
    times=st.lists(st.integers(1_000_000_000, 4_000_000_000), min_size=2, max_size=2),
    bodies=st.tuples(st.binary(max_size=100), st.binary(max_size=100)),
)
def test_a_signature_is_that_of_botocore(
    *,
    url: str,
    access_key: str,
    secret: str,
    tokens: tuple[str | None, str | None],
    times: list[int],
    bodies: tuple[bytes, bytes],
) -> None:
    """A request is learnt at one time, and repeated with another body, token and time."""
    scope = SigningScope("eu-west-1", "kinesis")
    first, second = (Credentials(access_key, secret, token) for token in tokens)
    sample = signed_by_botocore(url, first, scope, times[0], bodies[0])
    learned = learn(sample.prepare())
    assert learned is not None
    assert learned.scope == scope
    signer = Signer(learned.scope, lambda: times[1])
    for _ in range(2):
        date, proof = signer.sign(second, learned.canonical, bodies[1])
        theirs = signed_by_botocore(url, second, scope, times[1], bodies[1]).headers
        assert proof == theirs["Authorization"]
        assert date == theirs["X-Amz-Date"]


def test_the_key_of_a_day_is_not_used_on_the_next() -> None:
    now = [1_700_000_000.0]
    signer, keys = Signer(SigningScope("r", "s"), lambda: now[0]), Credentials("a", "b")
    request = AWSRequest("POST", "https://h/", {"Content-Type": "application/x-amz-json-1.1"}, b"")
    SigV4Auth(keys, "s", "r").add_auth(request)
    learned = learn(request.prepare())
    assert learned is not None
    before = signer.sign(keys, learned.canonical, b"")
    now[0] += 86_400
    after = signer.sign(keys, learned.canonical, b"")
    again = Signer(SigningScope("r", "s"), lambda: now[0])
    assert after == again.sign(keys, learned.canonical, b"")
    assert before != after


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer abc",
        "AWS4-ECDSA-P256-SHA256 Credential=a/1/s/aws4_request, SignedHeaders=host, Signature=00",
        "AWS4-HMAC-SHA256 Credential=a/2026/r/s/aws4_request, SignedHeaders=host, Signature=00",
    ],
)
def test_other_kinds_of_signatures_are_not_repeated(header: str) -> None:
    assert parse_authorization(header) is None


@pytest.mark.parametrize(
    ("url", "method", "content"),
    [
        ("https://h/path", "POST", "application/x-amz-json-1.1"),
        ("https://h/?a=b", "POST", "application/x-amz-json-1.1"),
        ("https://h/", "GET", "application/x-amz-json-1.1"),
        ("https://h/", "POST", "application/cbor"),
    ],
)
def test_requests_of_another_shape_are_not_repeated(url: str, method: str, content: str) -> None:
    request = AWSRequest(method, url, {"Content-Type": content}, b"{}")
    SigV4Auth(Credentials("a", "b"), "kinesis", "eu-west-1").add_auth(request)
    assert learn(request.prepare()) is None
