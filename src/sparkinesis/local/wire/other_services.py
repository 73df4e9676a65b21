"""DynamoDB, STS and CloudWatch: the fault plan and the log of calls apply, and moto answers."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from sparkinesis.local.faults import Fault
from sparkinesis.local.kinesis import LocalKinesis
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.wire import statement_faults
from sparkinesis.local.wire.answer import Answer, json_error, xml_error
from sparkinesis.local.wire.dynamodb import Moto
from sparkinesis.local.wire.signer import Signer

DYNAMODB = "DynamoDB_20120810"
_QUERY_CODE = re.compile(rb"<Code>(\w+)</Code>")
CLOUDWATCH = "GraniteServiceVersion20100801"
_SIGNED_FOR_CLOUDWATCH = "monitoring"
# STS takes less: 100,000 characters of a SAML assertion, and a policy.
_MAX_QUERY = 256 << 10
_MAX_METRICS = 1 << 20
_GZIP = b"\x1f\x8b"


class _Call(msgspec.Struct, frozen=True):
    """A call of a service that moto serves. table: of DynamoDB."""

    service: str
    operation: str
    table: str | None = None


class _NamesTable(msgspec.Struct):
    table_name: str | None = msgspec.field(default=None, name="TableName")


class _RefusedError(Exception):
    """A request that moto must not see, and the response to it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class OtherServices:
    """The services besides Kinesis. kinesis: has the fault plan and the log.

    cloudwatch: whether CloudWatch is served.
    """

    def __init__(
        self, kinesis: LocalKinesis, backend: Moto | LeaseTables, *, cloudwatch: bool
    ) -> None:
        self._kinesis = kinesis
        self._backend = backend
        self._cloudwatch = cloudwatch

    async def answer(
        self, scope: MutableMapping[str, Any], target: str, signer: Signer, body: bytes
    ) -> Answer | None:
        """Answer a call, after the fault's delay; None if the fault drops the connection.

        target: of the request's header; empty for the query protocol, which STS uses.
        """
        try:
            call = self._json_call(target, body) if target else self._query_call(signer, body)
        except _RefusedError as refused:
            return refused.answer
        operation, table = call.operation, call.table
        fault = self._kinesis.fault_for(operation, signer.region, table)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        error: str | None = "Dropped" if fault.drop else None
        if fault.fails_whole_call:
            error = error or fault.code
        answer = Answer(0, [], b"")
        if fault.drop != "before":
            if not fault.fails_whole_call or fault.takes_effect:
                answer = await self._forward(scope, call, body, fault)
                error = error or _error_code(answer)
            if fault.fails_whole_call:
                answer = _failure(target, fault)
        self._kinesis.log_call(operation, signer.region, table, error, signer.key)
        return None if fault.drop else answer

    async def _forward(
        self, scope: MutableMapping[str, Any], call: _Call, body: bytes, fault: Fault
    ) -> Answer:
        """Return the backend's response, with the fault's errors for statements of a batch."""
        path = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        is_batch_fault = (
            bool(fault.entries and fault.code) and call.operation == statement_faults.OPERATION
        )
        sent = statement_faults.without_failing(body, fault) if is_batch_fault else body
        if sent is None:
            answer = Answer(200, [(b"content-type", b"application/x-amz-json-1.0")], b"")
        else:
            passed_on = (call.service, scope["method"], path, list(scope["headers"]), sent)
            answer = await asyncio.to_thread(self._backend.forward, *passed_on)
        if not is_batch_fault or answer.status != 200:
            return answer
        merged = statement_faults.with_errors(
            body, answer.body if sent is not None else None, fault
        )
        # moto's checksum is for the body before the merge.
        headers = [pair for pair in answer.headers if pair[0] != b"x-amz-crc32"]
        return Answer(200, headers, merged)

    def _json_call(self, target: str, body: bytes) -> _Call:
        """Return a call to DynamoDB or CloudWatch. Raises: _RefusedError."""
        service, _, operation = target.partition(".")
        if service == CLOUDWATCH and self._cloudwatch and operation:
            return _Call("cloudwatch", operation)
        if service != DYNAMODB or not operation:
            refusal = json_error("UnknownOperationException", self._not_served(target), 400)
            raise _RefusedError(refusal)
        try:
            table = msgspec.json.decode(body or b"{}", type=_NamesTable).table_name
            return _Call("dynamodb", operation, table)
        except msgspec.ValidationError:
            return _Call("dynamodb", operation)
        except (msgspec.DecodeError, RecursionError) as error:
            # moto would fail on it.
            refusal = json_error("SerializationException", str(error), 400, service)
            raise _RefusedError(refusal) from None

    def _query_call(self, signer: Signer, body: bytes) -> _Call:
        """Return a call in AWS's query protocol, of STS or CloudWatch. Raises: _RefusedError."""
        is_cloudwatch = self._cloudwatch and signer.service == _SIGNED_FOR_CLOUDWATCH
        if signer.service not in {None, "sts"} and not is_cloudwatch:
            message = self._not_served(signer.service or "")
            raise _RefusedError(xml_error("UnknownOperationException", message, 400))
        most = _MAX_METRICS if is_cloudwatch else _MAX_QUERY
        text = _unzipped(body, most) if is_cloudwatch else body
        if len(text) > most:
            name = "CloudWatch" if is_cloudwatch else "STS"
            message = f"a request to {name} has at most {most >> 10} KiB"
            raise _RefusedError(xml_error("RequestEntityTooLarge", message, 413))
        action = dict(parse_qsl(text.decode("latin-1"))).get("Action")
        if action is None:
            message = (
                "a request to STS names its Action, and one to Kinesis or DynamoDB its X-Amz-Target"
            )
            raise _RefusedError(xml_error("MissingAction", message, 400))
        return _Call("cloudwatch" if is_cloudwatch else "sts", action)

    def _not_served(self, what: str) -> str:
        """Say that there is no such service, and how there would be, if it is CloudWatch."""
        if what == _SIGNED_FOR_CLOUDWATCH or what.startswith(f"{CLOUDWATCH}."):
            return (
                "the local server does not serve CloudWatch unless it is told: start it with "
                "--cloudwatch, or LocalServer with cloudwatch=True"
            )
        return f"the local server has Kinesis, DynamoDB and STS, and nothing for {what[:100]!r}"


def _unzipped(body: bytes, most: int) -> bytes:
    """Return a body that may be compressed; of a larger one than ``most``, the beginning."""
    if not body.startswith(_GZIP):
        return body
    try:
        return zlib.decompressobj(wbits=31).decompress(body, most + 1)
    except zlib.error as error:
        raise _RefusedError(xml_error("SerializationException", str(error), 400)) from None


def _failure(target: str, fault: Fault) -> Answer:
    if target:
        service = target.partition(".")[0]
        return json_error(fault.code or "", fault.message, fault.status, service)
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
