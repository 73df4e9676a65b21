"""The bytes by which an aggregated record is recognised, before any is opened.

Most streams hold none, and a process that meets none never imports the protobuf runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.stream.page import Record

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_SIZE = 16
"""The size in bytes of the MD5 at the end of an aggregated record."""
ENVELOPE_SIZE = len(MAGIC) + DIGEST_SIZE
"""The bytes around the message. Data of this size or less is never an aggregate."""
MAX_SIZE = 1_048_576
"""The most bytes of an aggregated record, magic and digest included."""


def is_aggregated(data: bytes) -> bool:
    """Return True if ``data`` starts like an aggregated record, which may still be malformed."""
    return data.startswith(MAGIC) and len(data) > ENVELOPE_SIZE


def aggregates_of(records: Sequence[Record]) -> list[Record]:
    """Return the records that start like an aggregate, as `is_aggregated` says.

    Every page passes here, and most have no aggregate, so there is no call per record. Little other
    data, and no text, begins with bytes as high as these: the comparison already excludes most.
    """
    return [
        r
        for r in records
        if r.data >= MAGIC and r.data.startswith(MAGIC) and len(r.data) > ENVELOPE_SIZE
    ]
