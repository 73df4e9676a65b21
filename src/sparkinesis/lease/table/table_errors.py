"""Translates errors of DynamoDB: what happened, on which table, and what to do."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseLostError,
    LeaseTableError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.stream.calls.credential_errors import explain_credentials
from sparkinesis.stream.calls.explain import ACCESS_DENIED, words
from sparkinesis.stream.calls.retry import error_code, is_retryable

_NEEDED = (
    "A worker needs dynamodb:DescribeTable, CreateTable (and TagResource for tags) to set the "
    "table up, UpdateContinuousBackups for point-in-time recovery, and Scan, GetItem, PutItem, "
    "UpdateItem, DeleteItem and PartiQLUpdate on it"
)


def explain(
    error: ClientError | BotoCoreError, operation: str, table: TableAddress
) -> SparkinesisError:
    """Return the error to raise for ``error``, as one paragraph without a second traceback."""
    code = error_code(error)
    said = words(error)
    call = f"{operation} on the {table}"
    about_credentials = explain_credentials(error, said, call, table.credentials)
    if about_credentials is not None:
        return about_credentials
    if code in {"ResourceNotFoundException", "ResourceNotFound"}:
        return LeaseTableNotFoundError(
            f"There is no {table}. {_if_missing(table)} The service said: {said}"
        )
    if code in ACCESS_DENIED:
        return AccessDeniedError(
            f"Not allowed to call {call}. {_permissions(operation, table)} The service said: {said}"
        )
    if code == "NoRegionError":
        return ServiceError(
            f"No region is known for the {table}. Set the region, for instance to eu-west-1, or "
            "the environment variable AWS_REGION."
        )
    if is_retryable(error):
        if code == "EndpointConnectionError":
            return LeaseTableUnavailableError(
                f"Nothing answers for the {table}. {_if_unreachable(table)} botocore said: {said}"
            )
        return LeaseTableUnavailableError(
            f"{call} failed. Every retry was used up. The service said: {said}"
        )
    return ServiceError(f"{call} failed. A retry would not help. The service said: {said}")


def lease_lost(doing: str, shard: str, table: TableAddress, why: str) -> LeaseLostError:
    """Return the error of a write to a lease that the worker no longer holds."""
    return LeaseLostError(
        f"Cannot {doing} for shard {shard} in the {table}: this worker no longer holds the lease; "
        f"{why}. Nothing was written. Stop processing the shard: the next owner of the lease "
        "resumes from its last checkpoint."
    )


def write_refused(doing: str, shard: str, table: TableAddress) -> LeaseTableError:
    """Return the error of a write that the server refuses again and again."""
    return LeaseTableError(
        f"Cannot {doing} for shard {shard} in the {table}: the server refuses the write, although "
        "the row meets the write's condition. Nothing was written. Check which server answers "
        "there, and that its conditional writes work."
    )


def _if_missing(table: TableAddress) -> str:
    if table.is_ours:
        return (
            "Either it was deleted, or the application has not run yet, or it is looked for in "
            "the wrong place. If it was deleted, restore it from a backup, or from the checkpoints "
            'that the workers have logged: see the runbook "The lease table was deleted". Until '
            "then start and stop no worker: those that run resume once the table is back, and one "
            "that starts makes an empty table. Otherwise check the name, which is the "
            "application's unless that sets table_name, the region, the endpoint and the account "
            "of the credentials."
        )
    return (
        "A KCL application keeps its checkpoints in a DynamoDB table of its own name: check that "
        "name in the option initialPosition, that the application runs in the region of the "
        "option region, and that your credentials are of its account."
    )


def _permissions(operation: str, table: TableAddress) -> str:
    if table.is_ours:
        return f"Give the credentials in use dynamodb:{operation}. {_NEEDED}."
    return (
        f"Give the credentials in use dynamodb:{operation} on it; nothing else is called on it, "
        "and nothing is written."
    )


def _if_unreachable(table: TableAddress) -> str:
    if table.is_ours:
        return "Check the region and the endpoint, and that this machine reaches it."
    return (
        "Check the options region and dynamodbEndpoint for a typing error, and that the driver "
        "reaches the endpoint."
    )
