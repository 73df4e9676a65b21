"""A body that botocore reads from behind a proxy, in the form of one of our own connections.

A thread copies it to a pair of sockets: urllib3's response has buffers that no selector sees.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import urllib3.exceptions
from urllib3 import HTTPResponse

from sparkinesis.stream.calls.direct.streamed_body import StreamedBody

_PIECE = 65_536


class PumpedBody(StreamedBody):
    """The bytes of urllib3's response, and its failure."""

    def __init__(self, connection: socket.socket, response: HTTPResponse) -> None:
        super().__init__(response.url or "", connection, b"", {})
        self._response = response
        self.failure: Exception | None = None

    def read(self, most: int, until: float, /) -> bytearray:
        body = super().read(most, until)
        if len(body) < most and self.failure is not None:
            raise self.failure
        return body

    def shutdown(self) -> None:
        super().shutdown()
        # An error means that the read has just ended, or that the peer has disconnected.
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        self.shutdown()
        super().close()


def pumped(response: HTTPResponse) -> PumpedBody:
    """Copy a response in a thread of its own, and return the other end."""
    ours, theirs = socket.socketpair()
    body = PumpedBody(ours, response)
    threading.Thread(
        target=_pump, args=(response, theirs, body), name="sparkinesis-behind-proxy", daemon=True
    ).start()
    return body


def _pump(response: HTTPResponse, to: socket.socket, body: PumpedBody) -> None:
    try:
        while data := response.read1(_PIECE):
            to.sendall(data)
    except urllib3.exceptions.ReadTimeoutError as error:
        body.failure = TimeoutError(str(error))
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        body.failure = EOFError(str(error))
    finally:
        with contextlib.suppress(OSError):
            to.close()
        response.close()
