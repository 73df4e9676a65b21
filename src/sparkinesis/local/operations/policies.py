"""The operations on resource policies, of streams and of consumers. Policies have no effect."""

from __future__ import annotations

import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.errors import KinesisError
from sparkinesis.local.operations.consumers import check_active, find_resource
from sparkinesis.local.operations.context import Context, Json

_NO_POLICY = "{}"


def put_resource_policy(context: Context, request: requests.PutResourcePolicy) -> None:
    _check_policy(request.policy)
    resource = find_resource(context, request.resource_arn)
    check_active(context, resource)
    resource.policy = request.policy


def get_resource_policy(context: Context, request: requests.ResourceRequest) -> Json:
    policy = find_resource(context, request.resource_arn).policy
    return {"Policy": _NO_POLICY if policy is None else policy}


def delete_resource_policy(context: Context, request: requests.ResourceRequest) -> None:
    resource = find_resource(context, request.resource_arn)
    check_active(context, resource)
    if resource.policy is None:
        raise KinesisError(
            "ResourceNotFoundException",
            f"No resource policy found for resource ARN {request.resource_arn}.",
        )
    resource.policy = None


def _check_policy(text: str) -> None:
    try:
        policy = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise errors.invalid_argument(f"The policy is not valid JSON: {error}") from None
    if not isinstance(policy, dict):
        raise errors.invalid_argument("The policy is not a JSON object.")
