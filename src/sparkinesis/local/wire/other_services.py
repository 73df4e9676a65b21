"""DynamoDB, STS and CloudWatch: the fault plan and the log of calls apply, and moto answers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from sparkinesis.local.faults import Fault
from sparkinesis.local.kinesis import DEFAULT_REGION, LocalKinesis
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.wire.answer import (
    CLOUDWATCH,
    Answer,
    UndecodableError,
    as_cbor,
    as_json,
    json_error,
    speaks_cbor,
    xml_error,
)
from sparkinesis.local.wire.dynamodb import Moto

DYNAMODB = "DynamoDB_20120810"
_QUERY_CODE = re.compile(rb"<Code>(\w+)</Code>")
_SIGNED_FOR_CLOUDWATCH = "monitoring"
# STS takes less: 100,000 characters of a SAML assertion, and a policy.
_MAX_QUERY = 256 << 10
_MAX_METRICS = 1 << 20
_BY_NO_PROTOCOL = (b"text/html", b"text/plain")
_CODES = {
    400: "SerializationException",
    404: "UnknownOperationException",
    501: "NotImplemented",
    503: "ServiceUnavailable",
}


class _Call(msgspec.Struct, frozen=True):
    """A call of a service that moto serves. table: of DynamoDB."""

    service: str
    operation: str
    table: str | None = None


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
        self, scope: MutableMapping[str, Any], target: str, signer: SignedBy, body: bytes
    ) -> Answer | None:
        """Answer a call, after the fault's delay; None if the fault drops the connection.

        target: of the request's header or path; empty for the query protocol, which STS uses.
        """
        in_cbor = speaks_cbor(scope)
        try:
            if in_cbor and not target.startswith(f"{CLOUDWATCH}."):
                message = f"{self._not_served(target)}, in Smithy's RPC v2 protocol"
                raise _RefusedError(json_error("UnknownOperationException", message, 400))
            if target.startswith(CLOUDWATCH) or signer.service == _SIGNED_FOR_CLOUDWATCH:
                scope, body = _unzipped(scope, target, body)
            if in_cbor:
                scope, body = _in_json(scope, target, body)
            call = self._json_call(target, body) if target else self._query_call(signer, body)
        except _RefusedError as refused:
            answer: Answer | None = refused.answer
        else:
            answer = await self._answer_call(scope, target, signer, call, body)
        return as_cbor(answer, target) if in_cbor and answer is not None else answer

    async def _answer_call(
        self,
        scope: MutableMapping[str, Any],
        target: str,
        signer: SignedBy,
        call: _Call,
        body: bytes,
    ) -> Answer | None:
        """Answer a call that is not refused at once."""
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
                answer = _readable(target, await self._forward(scope, call, body, fault))
                error = error or _error_code(answer)
            if fault.fails_whole_call:
                answer = _error(target, fault.code or "", fault.message, fault.status)
        self._kinesis.log_call(operation, signer.region, table, error, signer.key)
        return None if fault.drop else answer

    async def _forward(
        self, scope: MutableMapping[str, Any], call: _Call, body: bytes, fault: Fault
    ) -> Answer:
        """Return the backend's response, with the fault's errors for statements of a batch."""
        path = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        is_batch_fault = bool(fault.entries and fault.code) and call.operation == _BATCH_OPERATION
        sent = _without_failing(body, fault) if is_batch_fault else body
        if sent is None:
            answer = Answer(200, [(b"content-type", b"application/x-amz-json-1.0")], b"")
        else:
            passed_on = (call.service, scope["method"], path, list(scope["headers"]), sent)
            answer = await asyncio.to_thread(self._backend.forward, *passed_on)
        if not is_batch_fault or answer.status != 200:
            return answer
        merged = _with_errors(body, answer.body if sent is not None else None, fault)
        # moto's checksum is for the body before the merge.
        headers = [pair for pair in answer.headers if pair[0] != b"x-amz-crc32"]
        return Answer(200, headers, merged)

    def _json_call(self, target: str, body: bytes) -> _Call:
        """Return a call to DynamoDB or CloudWatch. Raises: _RefusedError."""
        service, _, operation = target.partition(".")
        is_cloudwatch = service == CLOUDWATCH and self._cloudwatch
        if not operation or not (is_cloudwatch or service == DYNAMODB):
            message = self._not_served(target)
            raise _RefusedError(_error(target, "UnknownOperationException", message))
        try:
            sent = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            # moto would fail on it.
            raise _RefusedError(_error(target, "SerializationException", str(error))) from None
        if is_cloudwatch:
            return _Call("cloudwatch", operation)
        with contextlib.suppress(KeyError, msgspec.DecodeError):
            return _Call("dynamodb", operation, msgspec.json.decode(sent["TableName"], type=str))
        return _Call("dynamodb", operation)

    def _query_call(self, signer: SignedBy, body: bytes) -> _Call:
        """Return a call in AWS's query protocol, of STS or CloudWatch. Raises: _RefusedError."""
        is_cloudwatch = self._cloudwatch and signer.service == _SIGNED_FOR_CLOUDWATCH
        if signer.service not in {None, "sts"} and not is_cloudwatch:
            message = self._not_served(signer.service or "")
            raise _RefusedError(xml_error("UnknownOperationException", message, 400))
        if not is_cloudwatch:
            _check_size("STS", body, _MAX_QUERY, "")
        action = dict(parse_qsl(body.decode("latin-1"))).get("Action")
        if action is None:
            message = (
                "a request to STS names its Action, and one to Kinesis or DynamoDB its X-Amz-Target"
            )
            raise _RefusedError(xml_error("MissingAction", message, 400))
        return _Call("cloudwatch" if is_cloudwatch else "sts", action)

    def _not_served(self, what: str) -> str:
        """Return the message that a service is not served, with the way to serve CloudWatch."""
        if what == _SIGNED_FOR_CLOUDWATCH or what.startswith(f"{CLOUDWATCH}."):
            return (
                "the local server does not serve CloudWatch unless it is told: start it with "
                "--cloudwatch, or LocalServer with cloudwatch=True"
            )
        return f"the local server has Kinesis, DynamoDB and STS, and nothing for {what[:100]!r}"


def _in_json(
    scope: MutableMapping[str, Any], target: str, body: bytes
) -> tuple[MutableMapping[str, Any], bytes]:
    """Return a request in CBOR as one in JSON. Raises: _RefusedError."""
    try:
        return as_json(scope, target, body)
    except UndecodableError as error:
        raise _RefusedError(_error(target, "SerializationException", str(error))) from None


def _unzipped(
    scope: MutableMapping[str, Any], target: str, body: bytes
) -> tuple[MutableMapping[str, Any], bytes]:
    """Return a request to CloudWatch without compression, or refuse it as too large."""
    if dict(scope["headers"]).get(b"content-encoding") == b"gzip":
        try:
            body = zlib.decompressobj(wbits=31).decompress(body, _MAX_METRICS + 1)
        except zlib.error as error:
            raise _RefusedError(_error(target, "SerializationException", str(error))) from None
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-encoding"]
        scope = {**scope, "headers": headers}
    _check_size("CloudWatch", body, _MAX_METRICS, target)
    return scope, body


def _check_size(service: str, body: bytes, most: int, target: str) -> None:
    if len(body) > most:
        message = f"a request to {service} has at most {most >> 10} KiB"
        raise _RefusedError(_error(target, "RequestEntityTooLarge", message, 413))


def _readable(target: str, answer: Answer) -> Answer:
    """Return a page or a text that comes instead of moto's answer as an error for the caller."""
    if answer.status < 400 or not dict(answer.headers)[b"content-type"].startswith(_BY_NO_PROTOCOL):
        return answer
    what = answer.body.decode(errors="replace").strip()
    if what.startswith("<"):
        what = f"moto failed ({answer.status}): see its message on standard error"
        if answer.status == 404:
            what = "calls have the path /"
    code = _CODES.get(answer.status, "InternalFailure")
    return _error(target, code, what, answer.status)


def _error(target: str, code: str, message: str, status: int = 400) -> Answer:
    """Return an error in the protocol of a call: JSON for one with a target, else XML."""
    if target:
        return json_error(code, message, status, target.partition(".")[0])
    return xml_error(code, message, status)


def _error_code(answer: Answer) -> str | None:
    if answer.status < 400:
        return None
    try:
        kind = msgspec.json.decode(answer.body)["__type"]
    except (msgspec.DecodeError, KeyError, TypeError):
        found = _QUERY_CODE.search(answer.body)
        return found[1].decode() if found else str(answer.status)
    return str(kind).rpartition("#")[2]


_CREDENTIAL = re.compile(rb"Credential=([^/,\s]+)/\d{8}/([a-z0-9-]+)/(?:([a-z0-9-]+)/)?")


class SignedBy(NamedTuple):
    """The scope of a signature. key: the access key's id. service: None if there is none."""

    region: str
    key: str | None
    service: str | None


def signer(authorization: bytes) -> SignedBy:
    found = _CREDENTIAL.search(authorization)
    if found is None:
        return SignedBy(DEFAULT_REGION, None, None)
    return SignedBy(found[2].decode(), found[1].decode(), found[3].decode() if found[3] else None)


_BATCH_OPERATION = "BatchExecuteStatement"

_Json = dict[str, Any]


def _without_failing(body: bytes, fault: Fault) -> bytes | None:
    """Return the request with only the statements that take effect; None if there are none."""
    request: _Json = msgspec.json.decode(body)
    if fault.takes_effect:
        return body
    kept = [one for i, one in enumerate(request["Statements"]) if i not in fault.entries]
    return msgspec.json.encode({**request, "Statements": kept}) if kept else None


def _with_errors(body: bytes, answer: bytes | None, fault: Fault) -> bytes:
    """Return the response to all statements of the request ``body``, errors included.

    ``answer``: the response to `without_failing`; None if no statement was left to execute.
    """
    answered: _Json = {"Responses": []} if answer is None else msgspec.json.decode(answer)
    responses = list(answered["Responses"])
    error: Mapping[str, Any] = {"Error": {"Code": fault.code, "Message": fault.message}}
    for i in range(len(msgspec.json.decode(body)["Statements"])):
        if i not in fault.entries:
            continue
        if fault.takes_effect:
            responses[i] = error
        else:
            responses.insert(i, error)
    return msgspec.json.encode({**answered, "Responses": responses})
