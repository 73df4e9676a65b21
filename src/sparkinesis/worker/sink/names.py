"""The names of files: of a sink, and of dead letters. Pure."""

from __future__ import annotations

import hashlib

from sparkinesis.stream.address import StreamIdentifier

_LONGEST = 160
"""Bytes of the part of a name that tells the records; file systems allow 255 in all, of which a
hidden name of a dead letter takes 42 more."""
_LONGEST_OF_SEVERAL = 200
"""The same with several streams, whose names take more."""


def stream_label(stream: str, stream_id: str | None) -> str:
    """Return the text that stands for a stream in file names.

    ``stream_id``: the identifier of one of several streams, whose names need not differ; None: the
    application reads one stream, whose name is the text.
    """
    return stream if stream_id is None else StreamIdentifier.parse(stream_id).file_label


def shortened(name: str) -> str:
    """Return a name that fits into a file's name. The same name always becomes the same."""
    encoded = name.encode()
    longest = _LONGEST if "@" not in name else _LONGEST_OF_SEVERAL
    if len(encoded) <= longest:
        return name
    # Streams and shards may have names of 128 characters, and sequence numbers as many digits.
    digest = hashlib.blake2b(encoded, digest_size=16).hexdigest()
    return f"{encoded[: longest - len(digest) - 1].decode(errors='ignore')}-{digest}"
