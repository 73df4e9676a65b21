"""What botocore's client does for a direct one: rare calls, the first requests, and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

import botocore.parsers
from botocore import xform_name
from botocore.awsrequest import HeadersDict
from botocore.exceptions import ClientError
from botocore.utils import get_environ_proxies

from sparkinesis.metrics.health.signs import CONNECTING, CREDENTIALS, expect
from sparkinesis.stream.calls.direct.connection import HttpAnswer
from sparkinesis.stream.calls.direct.learned import LearnedRequest, learn
from sparkinesis.stream.calls.direct.signature import Signers


class _Prepared(Exception):  # noqa: N818 - botocore stops for it, and nobody else sees it
    """botocore has prepared a request that can be repeated."""

    def __init__(self, learned: LearnedRequest) -> None:
        super().__init__("the request is sent directly")
        self.learned = learned


class ByBotocore:
    """botocore's client of one service. For any thread.

    operations: those whose requests `prepare` takes from botocore. signers: correct the clock; also
    that of botocore's calls.
    """

    def __init__(
        self, client: Any, session: Any, operations: Collection[str], signers: Signers
    ) -> None:
        self._client = client
        self._credentials = session.get_credentials()
        self._signers = signers
        self._proxies = get_environ_proxies(client.meta.endpoint_url)
        self._thread = threading.local()
        self._service = client.meta.service_model
        self._operations: Mapping[str, str] = client.meta.method_to_api_mapping
        # Before 1.36, botocore has the protocol in the metadata only.
        protocol = getattr(self._service, "resolved_protocol", self._service.metadata["protocol"])
        self._parser = botocore.parsers.create_parser(protocol)
        event = f"before-send.{self._service.service_id.hyphenize()}"
        client.meta.events.register_first(event, self._before_send)
        for operation in operations:
            # botocore calls the handlers of one operation first. Another one of those may send.
            client.meta.events.register_first(f"{event}.{operation}", self._before_send)
        wanted = str(session.get_config_variable("endpoint_discovery_enabled")).strip().lower()
        self.looks_for_endpoints = (
            wanted == "true" and self._service.endpoint_discovery_operation is not None
        )
        """True if the user wants botocore to ask DynamoDB for endpoints, which change."""

    def attribute(self, name: str) -> Any:
        """Return an attribute of botocore's client: a method that calls `call`, or another one."""
        found = getattr(self._client, name)
        if name not in self._operations:
            return found
        return lambda **request: self.call(self._operations[name], request)

    def close(self) -> None:
        self._client.close()

    def prepare(
        self, operation: str, request: Mapping[str, Any]
    ) -> LearnedRequest | dict[str, Any]:
        """Return the request that botocore prepares; or the answer, if botocore has to send it."""
        try:
            answer: dict[str, Any] = self.call(operation, request, may_prepare=True)
        except _Prepared as prepared:
            return prepared.learned
        return answer

    def call(
        self, operation: str, request: Mapping[str, Any], *, may_prepare: bool = False
    ) -> dict[str, Any]:
        """Call an operation; a second time if the first attempt corrects the clock."""
        method: Callable[..., dict[str, Any]] = getattr(self._client, xform_name(operation))
        config = self._client.meta.config
        expect(max(CREDENTIALS, CONNECTING + config.connect_timeout + config.read_timeout))
        self._thread.may_prepare = may_prepare
        skew = self._signers.skew
        try:
            return method(**request)
        except ClientError as error:
            if not self._signers.corrects_clock(error, skew):
                raise
        finally:
            self._thread.may_prepare = False
        return method(**request)

    def _before_send(self, request: Any, **_: Any) -> None:
        """Stop botocore from sending a request that can be sent directly; sign any other anew.

        botocore's ``before-send`` permits both.
        """
        if getattr(self._thread, "may_prepare", False) and not self._proxies.get(
            urlsplit(request.url).scheme
        ):
            learned = learn(request)
            if learned is not None:
                raise _Prepared(learned)
        if self._signers.skew and (signed := learn(request)) is not None:
            keys = self._credentials.get_frozen_credentials()
            body = request.body or b""
            date, proof = self._signers.of(signed.scope).sign(keys, signed.canonical, body)
            request.headers["X-Amz-Date"] = date
            request.headers["Authorization"] = proof

    def error(self, operation: str, answer: HttpAnswer) -> ClientError:
        """Return botocore's error for an answer, made by botocore's parser."""
        shape = self._service.operation_model(operation).output_shape
        response = {
            "status_code": answer.status,
            "headers": HeadersDict(answer.headers),
            "body": bytes(answer.body),
        }
        parsed = self._parser.parse(response, shape)
        code = parsed.get("Error", {}).get("Code")
        error_shape = self._service.shape_for_error_code(code)
        if error_shape is not None:
            # The fields of its own, such as the row of a refused condition.
            parsed.update(self._parser.parse(response, error_shape))
        kind = self._client.exceptions.from_code(code)
        error: ClientError = kind(parsed, operation)
        return error
