"""Worker ids: generates them, and distinguishes them from a Java KCL's. Pure."""

from __future__ import annotations

import random
import re

_OURS = re.compile(r".+-[0-9]+-[0-9a-f]{12}", re.DOTALL)
_UUID = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL | re.IGNORECASE)
"""A Java KCL's default worker id, or the end of it."""


def default_worker_id(host: str, pid: int, rng: random.Random) -> str:
    """Return a unique worker id with the host and the process of the worker."""
    return f"{host}-{pid}-{rng.getrandbits(48):012x}"


def is_default(worker_id: str) -> bool:
    """Return True for the form that `default_worker_id` generates; a UUID does not count."""
    return bool(_OURS.fullmatch(worker_id)) and not _UUID.fullmatch(worker_id)
