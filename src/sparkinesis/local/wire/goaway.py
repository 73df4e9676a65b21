"""A client's GOAWAY, kept from h2.

It says that no new calls will come on a connection; those under way go on (RFC 9113, section 6.8).
The AWS SDK for JavaScript sends it while it waits for the answer to the last call of a connection.
h2 takes it for the end of the connection, where nothing may be sent or received any more. Nothing
is lost by not telling it: the client closes the connection when it has all answers.
"""

from __future__ import annotations

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, section 3.4
_HEADER = 9
_GOAWAY = 0x7


class GoawayFilter:
    """What a client sends, from the preface on, without its GOAWAY frames."""

    def __init__(self) -> None:
        self._header = b""  # of the next frame, as far as it came
        self._left = len(PREFACE)  # bytes of the frame under way
        self._kept = True

    def feed(self, data: bytes) -> bytes:
        """Takes bytes as they come, cut anywhere."""
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
