"""botocore's client and ours, and what a caller sees of a call by either."""

from __future__ import annotations

import functools
import json
from typing import Any

from botocore.exceptions import ClientError

from sparkinesis.stream.address import CredentialSource
from sparkinesis.stream.calls.answers.guards import USUAL, Bound
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer
from sparkinesis.stream.calls.direct.usual import usual_settings
from sparkinesis.stream.calls.retry import error_code, is_in_doubt, is_retryable
from sparkinesis.stream.calls.session import client_of, open_session
from tests.integration.stream.direct.raw_server import http

SERVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "kinesis": (
        "get_shard_iterator",
        {"StreamName": "s", "ShardId": "i", "ShardIteratorType": "LATEST"},
    ),
    "dynamodb": ("get_item", {"TableName": "t", "Key": {"leaseKey": {"S": "k"}}}),
}
OPERATIONS = {"kinesis": "GetShardIterator", "dynamodb": "GetItem"}


def decode(answer: HttpAnswer) -> dict[str, Any]:
    return dict(json.loads(bytes(answer.body)))


def clients(
    endpoint: str | None,
    service: str = "kinesis",
    operation: str | None = None,
    *,
    region: str | None = "us-east-1",
    source: CredentialSource | None = None,
    read_timeout: float = 0.5,
    bound: Bound = USUAL,
) -> tuple[Any, Any]:
    """botocore's own client, and a direct one."""
    source = source or CredentialSource()
    bounds = {operation or OPERATIONS[service]: bound}
    opening = functools.partial(open_session, source, region, endpoint)

    def botocores(session: Any) -> Any:
        return client_of(session, service, endpoint, read_timeout=read_timeout, bounds=bounds)

    return botocores(opening()), DirectClient(
        opening,
        botocores,
        {operation or OPERATIONS[service]: decode},
        most_idle=4,
        read_timeout=read_timeout,
        bounds=bounds,
        usual=usual_settings(service, region, endpoint, source),
    )


def outcome(client: Any, service: str) -> tuple[Any, ...]:
    """What a caller sees of one call."""
    method, request = SERVICES[service]
    try:
        answer = getattr(client, method)(**request)
    except ClientError as error:
        response = error.response
        metadata = response["ResponseMetadata"]
        return (
            type(error).__name__,
            error_code(error),
            str(error).replace(" (reached max retries: 0)", ""),
            # botocore's retry counts its own attempts.
            {name: found for name, found in metadata.items() if name != "MaxAttemptsReached"},
            {name: found for name, found in response.items() if name != "ResponseMetadata"},
            is_retryable(error),
            is_in_doubt(error),
        )
    except Exception as error:  # noqa: BLE001 - that is what is compared
        return type(error).__name__, is_retryable(error), is_in_doubt(error)
    metadata = answer.pop("ResponseMetadata")
    own = "ShardIterator" if service == "kinesis" else "Item"
    return answer.get(own), metadata["HTTPStatusCode"], metadata["HTTPHeaders"].get("date")


BODY = b'{"Item": {"a": {"S": "b"}}, "ShardIterator": "7"}'
"""An answer of either service: each reads the part that is its own."""

FINE = http(BODY, Date="Mon, 21 Sep 2026 14:13:20 GMT")
