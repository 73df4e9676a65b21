"""Worker ids that this library makes, and how they are told from a Java KCL's. Pure."""

from __future__ import annotations

import random
import re

_OURS = re.compile(r".+-[0-9]+-[0-9a-f]{12}", re.DOTALL)
_UUID = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL | re.IGNORECASE)
"""What a Java KCL's worker id is, or ends with, if nobody chose another."""


def default_worker_id(host: str, pid: int, rng: random.Random) -> str:
    """A worker id that no other process has, and that tells where this one runs."""
    return f"{host}-{pid}-{rng.getrandbits(48):012x}"


def is_default(worker_id: str) -> bool:
    """Whether a worker id has the form of one that was made here; a UUID does not count."""
    return bool(_OURS.fullmatch(worker_id)) and not _UUID.fullmatch(worker_id)
