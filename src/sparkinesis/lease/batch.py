"""Many conditional writes in one call: BatchExecuteStatement, each statement on its own terms.

The service charges for each what an UpdateItem costs; saved are requests, their signatures, and
the time to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.broken import read_row
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.requests import Update, has_landed
from sparkinesis.stream.retry import Retry, is_in_doubt

BATCH = 25
"""The most statements that a call may hold."""

_T = TypeVar("_T")

_CODES = {
    "ConditionalCheckFailed": "ConditionalCheckFailedException",
    "ProvisionedThroughputExceeded": "ProvisionedThroughputExceededException",
    "ThrottlingError": "ThrottlingException",
    "RequestLimitExceeded": "RequestLimitExceeded",
    "TransactionConflict": "TransactionConflictException",
    "InternalServerError": "InternalServerError",
    "AccessDenied": "AccessDeniedException",
    "ResourceNotFound": "ResourceNotFoundException",
    "ValidationError": "ValidationException",
}
"""A statement's error codes, and what UpdateItem calls the same."""

_RETRIED = {
    "ProvisionedThroughputExceeded",
    "ThrottlingError",
    "RequestLimitExceeded",
    "TransactionConflict",
    "InternalServerError",
}


def batches_of(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def write_batch(
    client: Any, table: str, updates: Sequence[Update], retry: Retry
) -> list[Lease | ClientError | BotoCoreError]:
    """In the order of ``updates``, 25 at most: the row as it is then, or the error.

    Raises nothing. Statements that failed in passing are tried again, those only.
    """
    outcomes: dict[int, Lease | ClientError | BotoCoreError] = {}
    in_doubt: set[int] = set()

    def send() -> None:
        left = [i for i in range(len(updates)) if i not in outcomes]
        try:
            answer = client.batch_execute_statement(
                Statements=[updates[i].statement(table) for i in left]
            )
        except (ClientError, BotoCoreError) as error:
            if is_in_doubt(error):
                in_doubt.update(left)
            raise
        passing: ClientError | None = None
        for i, response in zip(left, answer["Responses"], strict=True):
            said = response.get("Error")
            if said is None:
                outcomes[i] = updates[i].after
                continue
            failure = _as_client_error(said)
            if said["Code"] in _RETRIED:
                passing = failure
                if is_in_doubt(failure):
                    in_doubt.add(i)
                continue
            row = read_row(said["Item"]) if said.get("Item") else None
            if isinstance(row, Lease) and i in in_doubt and has_landed(updates[i], row):
                outcomes[i] = row
            else:
                outcomes[i] = failure
        if passing is not None:
            raise passing

    last: ClientError | BotoCoreError | None = None
    try:
        retry.call(send)
    except (ClientError, BotoCoreError) as error:
        last = error
    results: list[Lease | ClientError | BotoCoreError] = []
    for i in range(len(updates)):
        outcome = outcomes.get(i, last)
        assert outcome is not None
        results.append(outcome)
    return results


def _as_client_error(error: Mapping[str, Any]) -> ClientError:
    """A statement's error in the shape of a call's, for what is to be done about both."""
    code = error["Code"]
    status = 500 if code == "InternalServerError" else 400
    response = {
        "Error": {"Code": _CODES.get(code, code), "Message": error.get("Message", "")},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    if error.get("Item"):
        response["Item"] = error["Item"]
    return ClientError(response, "BatchExecuteStatement")
