"""Whatever is wrong with a call, the answer is in its caller's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import cbor2
import pytest
import urllib3

from sparkinesis.local import LocalServer
from tests import pace

JSON, QUERY = "application/x-amz-json-1.0", "application/x-www-form-urlencoded"
GRANITE = "GraniteServiceVersion20100801"
CALLERS: dict[str, tuple[str, dict[str, str]]] = {
    "DynamoDB": ("dynamodb", {"content-type": JSON, "x-amz-target": "DynamoDB_20120810.Scan"}),
    "DynamoDB, a batch": (
        "dynamodb",
        {"content-type": JSON, "x-amz-target": "DynamoDB_20120810.BatchExecuteStatement"},
    ),
    "CloudWatch, JSON": (
        "monitoring",
        {"content-type": JSON, "x-amz-target": f"{GRANITE}.PutMetricData"},
    ),
    "CloudWatch, CBOR": (
        "monitoring",
        {"content-type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"},
    ),
    "CloudWatch, query": ("monitoring", {"content-type": QUERY}),
    "STS": ("sts", {"content-type": QUERY}),
    "Kinesis": (
        "kinesis",
        {
            "content-type": "application/x-amz-json-1.1",
            "x-amz-target": "Kinesis_20131202.PutRecord",
        },
    ),
    "Kinesis, JSON 1.0": (
        "kinesis",
        {"content-type": JSON, "x-amz-target": "Kinesis_20131202.PutRecord"},
    ),
    "Kinesis, CBOR": (
        "kinesis",
        {
            "content-type": "application/x-amz-cbor-1.1",
            "x-amz-target": "Kinesis_20131202.PutRecord",
        },
    ),
}
BODIES = [
    b"[]",
    b"null",
    b"5",
    b"\xff\xfe",
    b"[" * 5000,
    b'{"a":' * 600 + b"1" + b"}" * 600,
    b'{"Namespace":5,"MetricData":{"a":1},"TableName":[1],"Statements":5,"StreamName":5}',
    cbor2.dumps({"Namespace": 5, "MetricData": {"a": 1}, "StreamName": 5}),
    b"Action=PutMetricData&Namespace=5&MetricData.member.x=1",
    b"Action=Nonsense",
]


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    with LocalServer(cloudwatch=True) as running:
        yield running


def post(server: LocalServer, service: str, path: str, body: bytes, head: dict[str, str]) -> Any:
    scope = f"AWS4-HMAC-SHA256 Credential=a/20270101/us-east-1/{service}/aws4_request"
    url, headers = f"{server.endpoint_url}{path}", {"authorization": scope, **head}
    return urllib3.request(
        "POST", url, headers=headers, body=body, retries=False, timeout=pace.seconds(60)
    )


def code_of(answer: Any, protocol: str) -> str:
    """The code of an error, as a client of the protocol finds it."""
    if protocol == QUERY:
        code = ElementTree.fromstring(answer.data).find("Error/Code")
        assert code is not None
        return str(code.text)
    told = cbor2.loads(answer.data) if "cbor" in protocol else json.loads(answer.data)
    return str(told["__type"])


@pytest.mark.parametrize("caller", CALLERS)
def test_a_wrong_body_or_path_is_refused_in_the_callers_protocol(
    shared: LocalServer, caller: str
) -> None:
    service, head = CALLERS[caller]
    usual = f"/service/{GRANITE}/operation/PutMetricData" if "smithy-protocol" in head else "/"
    answers = [post(shared, service, usual, body, head) for body in BODIES]
    # moto takes some bodies that CloudWatch would not.
    refused = [answer for answer in answers if answer.status != 200]
    assert len(refused) >= len(BODIES) - 2
    codes = [code_of(answer, head["content-type"]) for answer in refused]
    assert all(codes)
    if caller in {"DynamoDB", "CloudWatch, JSON"}:  # SDKs send again what is an InternalFailure
        assert {answer.status for answer in refused[:5]} == {400}
        assert all(code.endswith("SerializationException") for code in codes[:5])
    zipped = {**head, "content-encoding": "gzip"}
    for path in (usual, "/elsewhere/x"):
        assert code_of(post(shared, service, path, b"no gzip", zipped), head["content-type"])
    assert code_of(post(shared, service, "/elsewhere/x", b"[]", head), head["content-type"])
