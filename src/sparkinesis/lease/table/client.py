"""boto3's DynamoDB client, with a faster decoder for Scan answers.

A worker scans its table every few seconds. botocore's parser visits every attribute of every row.
"""

from __future__ import annotations

import base64
import functools
from typing import Any

import msgspec

from sparkinesis.stream.calls.session import open_client
from sparkinesis.stream.credentials import CredentialSource

_READ_TIMEOUT = 5.0
"""Seconds. A renewal that hangs must leave time for another within the failover time."""

_BINARY = "pendingCheckpointState"
"""The only binary attribute of a lease; JSON holds it in base64."""


@functools.lru_cache(maxsize=16)
def dynamodb_client(region: str | None, endpoint: str | None, credentials: CredentialSource) -> Any:
    """Return the client, with its connection pool, of this process, region, endpoint and role."""
    client = open_client("dynamodb", credentials, region, endpoint, read_timeout=_READ_TIMEOUT)
    client.meta.events.register("before-parse.dynamodb.Scan", _decode_scan)
    return client


def _decode_scan(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Decode the rows here, and leave an empty document for botocore's parser.

    ``before-parse`` is botocore's own hook for custom parsing.
    """
    if response_dict["status_code"] >= 300:
        return
    answer = msgspec.json.decode(response_dict["body"])
    for item in answer["Items"]:
        state = item.get(_BINARY)
        if state is not None and "B" in state:
            item[_BINARY] = {"B": base64.b64decode(state["B"])}
    customized_response_dict["Items"] = answer["Items"]
    customized_response_dict["LastEvaluatedKey"] = answer.get("LastEvaluatedKey")
    response_dict["body"] = b"{}"
