"""The body of an answer, read in one piece.

botocore reads a body in pieces of 64 KiB and joins them. For a page of 10 MB the pieces and the
join took more CPU time than the socket. One read of the whole body fills one buffer, without a copy
in Python.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.exceptions import ReadTimeoutError as SocketTimeoutError


def read_whole_bodies(client: Any, operation: str) -> None:
    """Read the answers of one operation of a botocore client in one piece each.

    The handler of botocore's hook ``before-send`` sends the request by the client's own HTTP
    session, which has no public name. A client without one keeps botocore's way of reading.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    if session is not None:
        service = client.meta.service_model.service_id.hyphenize()
        send = functools.partial(_send, session)
        client.meta.events.register(f"before-send.{service}.{operation}", send)


def _send(session: Any, request: Any, **_: Any) -> AWSResponse:
    """Send a request, and read the answer's body. Raises the errors of botocore's own reading."""
    request.stream_output = True  # else the session reads the body itself
    response = session.send(request)
    try:
        body = response.raw.read()
    except SocketTimeoutError as error:
        raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except ProtocolError as error:
        raise ConnectionClosedError(
            endpoint_url=request.url, request=request, error=error
        ) from error
    except HTTPError as error:
        raise HTTPClientError(error=error) from error
    return AWSResponse(response.url, response.status_code, response.headers, _WholeBody(body))


class _WholeBody:
    """A body of one piece. To join one piece costs botocore nothing."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body
