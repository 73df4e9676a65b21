"""A client that speaks HTTP/2 without being asked to, as some of the AWS SDKs do."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from types import TracebackType
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)

JSON = "application/x-amz-json-1.1"
_SIGNED = "AWS4-HMAC-SHA256 Credential=x/20270115/us-east-1/kinesis/aws4_request"


@dataclasses.dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytearray = dataclasses.field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None
    unread: int = 0


def connected(url: str) -> socket.socket:
    host, _, port = urlsplit(url).netloc.partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


class Http2Client:
    """One connection. `reads`: gives room for more as soon as data comes, as clients should."""

    def __init__(self, url: str, *, reads: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self.scheme, self.authority, *_ = urlsplit(url)
        self.reads = reads
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.pings = 0
        self.socket = connected(url)
        if tls is not None:
            name = urlsplit(url).hostname
            self.socket = tls.wrap_socket(self.socket, server_hostname=name)
        self.h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.flush()

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def flush(self) -> None:
        # Not even nothing is sent to a connection that was reset: what came before is to be read.
        if data := self.h2.data_to_send():
            self.socket.sendall(data)

    def begin(
        self, operation: str, body: bytes = b"{}", kind: str = JSON, *, length: int | None = None
    ) -> int:
        """Sends a call of Kinesis; returns its stream.

        length: declares a longer body than is sent.
        """
        headers = [
            ("x-amz-target", f"Kinesis_20131202.{operation}"),
            ("content-type", kind),
            ("authorization", _SIGNED),
        ]
        if length is None:
            return self.request("POST", "/", headers, body)
        headers.append(("content-length", str(length)))
        return self.request("POST", "/", headers, body, ends=False)

    def request(
        self,
        method: str,
        path: str,
        headers: list[tuple[str, str]],
        body: bytes = b"",
        *,
        ends: bool = True,
    ) -> int:
        """Sends any request, as far as the server wants to have it; returns its stream."""
        number = self.h2.get_next_available_stream_id()
        answer = self.answers[number] = Answer()
        special = [
            (":method", method),
            (":scheme", self.scheme),
            (":path", path),
            (":authority", self.authority),
        ]
        self.h2.send_headers(number, [*special, *headers])
        left = memoryview(body)
        while answer.reset is None:
            room = self.h2.local_flow_control_window(number)
            if left and not room:
                self.receive()
                continue
            frame = left[: min(room, self.h2.max_outbound_frame_size)]
            left = left[len(frame) :]
            self.h2.send_data(number, frame, end_stream=ends and not left)
            self.flush()
            if not left:
                break
        return number

    def call(self, operation: str, body: bytes = b"{}", kind: str = JSON) -> Answer:
        return self.answer(self.begin(operation, body, kind))

    def answer(self, number: int) -> Answer:
        """Waits until it is there as a whole, or its stream was reset."""
        found = self.answers[number]
        while not found.ended and found.reset is None:
            self.receive()
        return found

    def ping(self) -> None:
        """Returns when the server has seen, and answered, everything that was sent so far."""
        before = self.pings
        self.h2.ping(b"12345678")
        self.flush()
        while self.pings == before:
            self.receive()

    def give_room(self) -> None:
        """Opens the window for data received while `reads` was False, and from now on."""
        self.reads = True
        for number, answer in self.answers.items():
            self._acknowledge(number, answer)
        self.flush()

    def receive(self) -> None:
        """Raises: ConnectionResetError; EOFError when the server ended the connection."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError
        for event in self.h2.receive_data(data):
            self._handle(event)
        self.flush()

    def drain(self) -> None:
        """Reads until the connection ends. Raises: as `receive`."""
        while True:
            self.receive()

    def _handle(self, event: Event) -> None:
        if isinstance(event, PingAckReceived):
            self.pings += 1
        elif isinstance(event, ConnectionTerminated):
            self.goaway = event.error_code
        elif isinstance(event, ResponseReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            answer = self.answers[event.stream_id]
            answer.status, answer.headers = int(headers.pop(":status")), headers
        elif isinstance(event, DataReceived):
            answer = self.answers[event.stream_id]
            answer.body += event.data
            answer.unread += event.flow_controlled_length
            if self.reads:
                self._acknowledge(event.stream_id, answer)
        elif isinstance(event, StreamEnded):
            self.answers[event.stream_id].ended = True
        elif isinstance(event, StreamReset):
            self.answers[event.stream_id].reset = int(event.error_code)

    def _acknowledge(self, number: int, answer: Answer) -> None:
        if answer.unread:
            self.h2.acknowledge_received_data(answer.unread, number)
            answer.unread = 0
