"""Sends many independent conditional writes in one call, BatchExecuteStatement.

The service charges each statement like an UpdateItem. A batch saves requests, their signatures, and
the time to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import read_row
from sparkinesis.lease.table.update import Update, has_landed
from sparkinesis.stream.calls.answers.guards import understood
from sparkinesis.stream.calls.retry import Backoff, is_in_doubt, is_retryable

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
"""A statement's error codes, and UpdateItem's names for the same errors."""


class Failed(msgspec.Struct, frozen=True):
    """A statement that was not executed, according to its answers."""

    error: ClientError | BotoCoreError
    """The statement's own error, in the shape of a call's; or the error of the whole call."""
    is_in_doubt: bool = False
    """True if a try of the statement may have taken effect nevertheless."""


def batches_of(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def write_batch(
    client: Any, table: str, updates: Sequence[Update], retry: Backoff
) -> list[Lease | Failed]:
    """Execute at most 25 updates; return the row or the failure of each, in order.

    Raises nothing. Only statements with transient failures are retried.
    """
    outcomes: list[Lease | Failed | None] = [None] * len(updates)

    def send() -> None:
        left = [i for i, outcome in enumerate(outcomes) if is_unsettled(outcome)]

        def execute(client: Any) -> list[Lease | Failed]:
            responses = _execute(client, [updates[i].statement(table) for i in left])
            return [
                outcome_of(updates[i], response, was_in_doubt=_was_in_doubt(outcomes[i]))
                for i, response in zip(left, responses, strict=True)
            ]

        try:
            found = understood(execute, client)
        except (ClientError, BotoCoreError) as error:
            for i in left:
                doubt = _was_in_doubt(outcomes[i]) or is_in_doubt(error)
                outcomes[i] = Failed(error, doubt)
            raise
        for i, one in zip(left, found, strict=True):
            outcomes[i] = one
        for outcome in outcomes:
            if isinstance(outcome, Failed) and is_retryable(outcome.error):
                raise outcome.error

    with suppress(ClientError, BotoCoreError):  # each failed outcome holds its error
        retry.call(send)
    return [outcome for outcome in outcomes if outcome is not None]


def is_unsettled(outcome: Lease | Failed | None) -> bool:
    """Return True if a statement is not sent yet, or failed with a transient error."""
    return outcome is None or (isinstance(outcome, Failed) and is_retryable(outcome.error))


def outcome_of(
    update: Update, response: Mapping[str, Any], *, was_in_doubt: bool
) -> Lease | Failed:
    """Return the outcome of a statement by its part of the answer.

    ``was_in_doubt``: an earlier try may have taken effect, which may be why this one is refused.
    """
    said = response.get("Error")
    if said is None:
        return update.after
    error = _as_client_error(said)
    doubt = was_in_doubt or is_in_doubt(error)
    row = read_row(said["Item"]) if said.get("Item") else None
    if doubt and isinstance(row, Lease) and has_landed(update, row):
        return row
    return Failed(error, doubt)


def errors_of(answer: Mapping[str, Any]) -> Iterator[ClientError]:
    """Yield the errors of an answer's statements, each in the shape of a call's."""
    for response in answer.get("Responses") or ():
        if said := response.get("Error"):
            yield _as_client_error(said)


def _was_in_doubt(outcome: Lease | Failed | None) -> bool:
    return isinstance(outcome, Failed) and outcome.is_in_doubt


def _execute(client: Any, statements: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    answer = client.batch_execute_statement(Statements=statements)
    responses: Sequence[Mapping[str, Any]] = answer.get("Responses") or ()
    if len(responses) != len(statements):
        # This server is not DynamoDB. Any of the statements may have been executed.
        said = f"{len(responses)} answers came for {len(statements)} statements"
        raise _client_error("IncompleteAnswer", said, 500)
    return responses


def _as_client_error(error: Mapping[str, Any]) -> ClientError:
    """Return a statement's error in the shape of a call's, so that both are handled alike."""
    code = error["Code"]
    status = 500 if code == "InternalServerError" else 400
    more = {"Item": error["Item"]} if error.get("Item") else {}
    return _client_error(_CODES.get(code, code), error.get("Message", ""), status, **more)


def _client_error(code: str, message: str, status: int, **more: Any) -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return ClientError(response, "BatchExecuteStatement")
