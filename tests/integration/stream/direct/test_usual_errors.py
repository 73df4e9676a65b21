"""An error that is made without botocore is the one that botocore makes."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkinesis.lease.table import client as lease_table
from sparkinesis.stream.address import FOUND_BY_BOTO
from sparkinesis.stream.calls import operations
from sparkinesis.stream.calls.direct.by_botocore import ByBotocore
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer
from sparkinesis.stream.calls.direct.signed_request import Signers
from sparkinesis.stream.calls.direct.usual_errors import FIELDS, usual_error
from sparkinesis.stream.calls.session import client_of, open_session
from tests.examples import examples
from tests.integration.stream.direct.both import clients, outcome
from tests.integration.stream.direct.raw_server import RawServer, http

pytestmark = pytest.mark.usefixtures("credentials")

OPERATIONS = {
    "kinesis": [*operations.DECODERS],
    "dynamodb": [*lease_table._DIRECTLY, "TransactWriteItems"],
}
ROW = {
    "leaseKey": {"S": "shard\u00e9", "Later": "not of the model"},
    "counters": {"M": {"n": {"N": "7"}, "flags": {"L": [{"BOOL": False}, {"NULL": True}]}}},
    "sets": {"L": [{"SS": ["a"]}, {"NS": ["1", "2"]}, {"BS": ["YWJj"]}, {"B": ""}]},
    "blob": {"B": "AP8K"},
}
SAID: dict[str, Any] = {
    "message": "The conditional request failed",
    "Message": "Transaction cancelled [ConditionalCheckFailed, None]",
    "Item": ROW,
    "CancellationReasons": [
        {"Code": "ConditionalCheckFailed", "Message": "no", "Item": ROW},
        {"Code": "None"},
    ],
    "ThrottlingReasons": [{"reason": "TableReadKeyRangeThroughputExceeded", "resource": "arn"}],
    "throttlingReasons": [{"reason": "AccountLimitExceeded"}],
    "Later": {"a": 1},
}
"""What any error may say; each has some of it."""
SAYINGS: list[dict[str, Any]] = [SAID, {"message": "no"}, {"Message": "yes"}, {"Item": {}}, {}]
CODES = [(service, code) for service, known in FIELDS.items() for code in known]


@functools.cache
def by_botocore(service: str) -> ByBotocore:
    session = open_session(FOUND_BY_BOTO, "us-east-1", None)
    client = client_of(session, service, None)
    return ByBotocore(client, session, OPERATIONS[service], Signers())


def answer_of(said: object, status: int = 400, **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpAnswer(status, named, json.dumps(said).encode())


def seen(error: ClientError) -> tuple[Any, ...]:
    kind = type(error)
    return kind.__name__, kind.__mro__[1:], str(error), error.operation_name, error.response


@pytest.mark.parametrize(("service", "code"), CODES)
def test_each_error_of_the_models_is_botocores(service: str, code: str) -> None:
    for name in (code, f"com.amazonaws.service.v20120810#{code}", f"{code}:http://x"):
        for said in SAYINGS:
            answer = answer_of({"__type": name, **said}, x_amzn_requestid="7")
            for operation in OPERATIONS[service]:
                error = usual_error(service, operation, answer)
                assert error is not None
                assert seen(error) == seen(by_botocore(service).error(operation, answer))


def test_all_errors_of_the_operations_are_known_with_all_their_fields() -> None:
    for service, names in OPERATIONS.items():
        model = by_botocore(service)._service
        shapes = [shape for name in names for shape in model.operation_model(name).error_shapes]
        assert {each.name: {*each.members} for each in shapes} == {
            code: {*fields} for code, fields in FIELDS[service].items()
        }
        assert [each.error_code for each in shapes] == [each.name for each in shapes]


ODD: list[Any] = [
    None,
    "",
    "x",
    7,
    2**70,
    [],
    {},
    [None],
    [{}],
    [7],
    {"a": {"B": "%"}},
    {"a": {"N": 7}},
]
CODE_TEXTS = [
    *{code for _, code in CODES},
    *("Other", "", "a:b#c", "#", ":", "x#ThrottlingException:http://x", "SerializationException"),
]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    service=st.sampled_from([*FIELDS]),
    code=st.sampled_from(CODE_TEXTS) | st.sampled_from([None, 7]),
    said=st.fixed_dictionaries(
        {},
        optional={name: st.just(value) | st.sampled_from(ODD) for name, value in SAID.items()},
    ),
    status=st.sampled_from([400, 400, 413, 500, 503]),
    headers=st.sampled_from([{}, {"x_amzn_requestid": ""}, {"x_amzn_query_error": "A;Sender"}]),
)
def test_any_error_is_botocores_or_left_to_botocore(
    service: str, code: str | int | None, said: dict[str, Any], status: int, headers: dict[str, str]
) -> None:
    typed = {} if code is None else {"__type": code}
    answer = answer_of({**typed, **said}, status, **headers)
    error = usual_error(service, OPERATIONS[service][0], answer)
    if error is not None:
        assert seen(error) == seen(by_botocore(service).error(OPERATIONS[service][0], answer))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"<html>no</html>", b'{"__type":"\xff"}', b"7", b'{"a":' * 5_000]
)
def test_what_is_no_object_is_left_to_botocore(body: bytes) -> None:
    assert usual_error("kinesis", "GetRecords", HttpAnswer(400, {}, body)) is None


def test_an_error_of_another_service_or_status_is_left_to_botocore() -> None:
    said = {"__type": "ThrottlingException", "message": "slow"}
    assert usual_error("monitoring", "PutMetricData", answer_of(said)) is None
    assert usual_error("kinesis", "GetRecords", answer_of(said, 300)) is None
    assert usual_error("kinesis", "GetRecords", answer_of(said, 301)) is not None


def test_botocore_is_opened_for_no_error_of_the_models(server: RawServer) -> None:
    for service in FIELDS:
        _, direct = clients(server.endpoint, service)
        for code in FIELDS[service]:
            body = json.dumps({"__type": code, **SAID}).encode()
            server.behaviours.append(http(body, "400 Bad Request"))
            assert outcome(direct, service)[:2] == (code, code)
        assert direct._botocore is None
        server.behaviours.append(http(b'{"__type": "Other"}', "400 Bad Request"))
        assert outcome(direct, service)[1] == "Other"
        assert direct._botocore is not None
