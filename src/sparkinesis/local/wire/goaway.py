"""A filter that removes a client's GOAWAY frames before h2 sees them.

GOAWAY means that no new calls follow on a connection; calls in progress continue (RFC 9113, section
6.8). The AWS SDK for JavaScript sends GOAWAY while it waits for the response to the last call of a
connection. h2 takes the frame for the end of the connection and sends nothing more. Dropping the
frame loses nothing: the client closes the connection when it has all responses.
"""

from __future__ import annotations

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, section 3.4
_HEADER = 9
_GOAWAY = 0x7


class GoawayFilter:
    """A filter for the bytes of one client, from the preface on."""

    def __init__(self) -> None:
        self._header = b""  # the received part of the next frame's header
        self._left = len(PREFACE)  # bytes missing of the current frame
        self._kept = True

    def feed(self, data: bytes) -> bytes:
        """Return `data`, which may be cut anywhere, without GOAWAY frames."""
        kept = []
        data = self._header + data
        at = 0
        while True:
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                if self._kept:
                    kept.append(part)
            if len(data) - at < _HEADER:
                break
            self._left = _HEADER + int.from_bytes(data[at : at + 3], "big")
            self._kept = data[at + 3] != _GOAWAY
        self._header = data[at:]
        return b"".join(kept)
