"""The operations on tags and policies: of streams, consumers, queues. Policies have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model.limits import MAX_TAGS
from sparkinesis.local.operations.context import ACCOUNT, Context, Json
from sparkinesis.local.operations.registration import Resource, check_active, find_resource
from sparkinesis.local.service_errors import KinesisError


def add_tags_to_stream(context: Context, request: requests.AddTagsToStream) -> None:
    _add(context, context.find(request.stream_name, request.stream_arn), request.tags)


def remove_tags_from_stream(context: Context, request: requests.RemoveTagsFromStream) -> None:
    _remove(context, context.find(request.stream_name, request.stream_arn), request.tag_keys)


def list_tags_for_stream(context: Context, request: requests.ListTagsForStream) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    after = request.exclusive_start_tag_key or ""
    tags = [tag for tag in _listed(stream) if tag["Key"] > after]
    page = tags[: request.limit or MAX_TAGS]
    return {"Tags": page, "HasMoreTags": len(tags) > len(page)}


def tag_resource(context: Context, request: requests.TagResource) -> None:
    _add(context, find_resource(context, request.resource_arn), request.tags)


def untag_resource(context: Context, request: requests.UntagResource) -> None:
    _remove(context, find_resource(context, request.resource_arn), request.tag_keys)


def list_tags_for_resource(context: Context, request: requests.ResourceRequest) -> Json:
    return {"Tags": _listed(find_resource(context, request.resource_arn))}


def _add(context: Context, resource: Resource, tags: Mapping[str, str]) -> None:
    validation.check_tags(_name(resource), tags, resource.tags)
    check_active(context, resource)
    resource.tags.update(tags)


def _remove(context: Context, resource: Resource, keys: Iterable[str]) -> None:
    validation.check_tag_keys(_name(resource), keys)
    check_active(context, resource)
    for key in keys:
        resource.tags.pop(key, None)


def _listed(resource: Resource) -> list[dict[str, str]]:
    return [{"Key": key, "Value": resource.tags[key]} for key in sorted(resource.tags)]


def _name(resource: Resource) -> str:
    return f"{type(resource).__name__.lower()} {resource.name} under account {ACCOUNT}"


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
        raise service_errors.invalid_argument(f"The policy is not valid JSON: {error}") from None
    if not isinstance(policy, dict):
        raise service_errors.invalid_argument("The policy is not a JSON object.")
