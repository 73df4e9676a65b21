"""DynamoDB and STS: the fault plan and the log of calls apply to them, and moto answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from sparkinesis.local.faults import Fault
from sparkinesis.local.kinesis import LocalKinesis
from sparkinesis.local.wire import statement_faults
from sparkinesis.local.wire.answer import Answer, json_error, xml_error
from sparkinesis.local.wire.signer import Signer

DYNAMODB = "DynamoDB_20120810"
_QUERY_CODE = re.compile(rb"<Code>(\w+)</Code>")
# STS takes less: 100,000 characters of a SAML assertion, and a policy.
_MAX_QUERY = 256 << 10

_Call = tuple[str, str | None]


class Backend(Protocol):
    """The server of DynamoDB and STS (see `dynamodb`)."""

    async def forward(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> Answer: ...


class _NamesTable(msgspec.Struct):
    table_name: str | None = msgspec.field(default=None, name="TableName")


class _RefusedError(Exception):
    """A request that moto must not see, and the response to it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class OtherServices:
    """The services besides Kinesis. kinesis: has the fault plan and the log."""

    def __init__(self, kinesis: LocalKinesis, backend: Backend) -> None:
        self._kinesis = kinesis
        self._backend = backend

    async def answer(
        self, scope: MutableMapping[str, Any], target: str, signer: Signer, body: bytes
    ) -> Answer | None:
        """Answer a call, after the fault's delay; None if the fault drops the connection.

        target: of the request's header; empty for STS.
        """
        try:
            operation, table = _json_call(target, body) if target else _query_call(signer, body)
        except _RefusedError as refused:
            return refused.answer
        fault = self._kinesis.fault_for(operation, signer.region, table)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        error: str | None = "Dropped" if fault.drop else None
        if fault.fails_whole_call:
            error = error or fault.code
        answer = Answer(0, [], b"")
        if fault.drop != "before":
            if not fault.fails_whole_call or fault.takes_effect:
                answer = await self._forward(scope, operation, body, fault)
                error = error or _error_code(answer)
            if fault.fails_whole_call:
                answer = _failure(target, fault)
        self._kinesis.log_call(operation, signer.region, table, error, signer.key)
        return None if fault.drop else answer

    async def _forward(
        self, scope: MutableMapping[str, Any], operation: str, body: bytes, fault: Fault
    ) -> Answer:
        """Return the backend's response, with the fault's errors for statements of a batch."""
        path = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        is_batch_fault = (
            bool(fault.entries and fault.code) and operation == statement_faults.OPERATION
        )
        sent = statement_faults.without_failing(body, fault) if is_batch_fault else body
        if sent is None:
            answer = Answer(200, [(b"content-type", b"application/x-amz-json-1.0")], b"")
        else:
            answer = await self._backend.forward(scope["method"], path, scope["headers"], sent)
        if not is_batch_fault or answer.status != 200:
            return answer
        merged = statement_faults.with_errors(
            body, answer.body if sent is not None else None, fault
        )
        # moto's checksum is for the body before the merge.
        headers = [pair for pair in answer.headers if pair[0] != b"x-amz-crc32"]
        return Answer(200, headers, merged)


def _json_call(target: str, body: bytes) -> _Call:
    """Return the operation and the table of a call to DynamoDB. Raises: _RefusedError."""
    service, _, operation = target.partition(".")
    if service != DYNAMODB or not operation:
        raise _RefusedError(json_error("UnknownOperationException", _not_served(target), 400))
    try:
        return operation, msgspec.json.decode(body or b"{}", type=_NamesTable).table_name
    except msgspec.ValidationError:
        return operation, None
    except (msgspec.DecodeError, RecursionError) as error:
        # moto would fail on it.
        refusal = json_error("SerializationException", str(error), 400, service)
        raise _RefusedError(refusal) from None


def _query_call(signer: Signer, body: bytes) -> _Call:
    """Return the operation of a call in AWS's query protocol, which STS uses, and no table.

    Raises: _RefusedError.
    """
    if signer.service not in {None, "sts"}:
        message = _not_served(signer.service or "")
        raise _RefusedError(xml_error("UnknownOperationException", message, 400))
    if len(body) > _MAX_QUERY:
        message = f"a request to STS has at most {_MAX_QUERY >> 10} KiB"
        raise _RefusedError(xml_error("RequestEntityTooLarge", message, 413))
    action = dict(parse_qsl(body.decode("latin-1"))).get("Action")
    if action is None:
        message = (
            "a request to STS names its Action, and one to Kinesis or DynamoDB its X-Amz-Target"
        )
        raise _RefusedError(xml_error("MissingAction", message, 400))
    return action, None


def _not_served(what: str) -> str:
    return f"the local server has Kinesis, DynamoDB and STS, and nothing for {what[:100]!r}"


def _failure(target: str, fault: Fault) -> Answer:
    if target:
        return json_error(fault.code or "", fault.message, fault.status, DYNAMODB)
    return xml_error(fault.code or "", fault.message, fault.status)


def _error_code(answer: Answer) -> str | None:
    if answer.status < 400:
        return None
    try:
        kind = msgspec.json.decode(answer.body)["__type"]
    except (msgspec.DecodeError, KeyError, TypeError):
        found = _QUERY_CODE.search(answer.body)
        return found[1].decode() if found else str(answer.status)
    return str(kind).rpartition("#")[2]
