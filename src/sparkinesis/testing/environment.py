"""The environment of a test: credentials for the local Kinesis, and none of AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_KEYS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
_HIDDEN = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")


@contextmanager
def local_credentials() -> Iterator[None]:
    """Give this process and its children credentials that open nothing, during the block."""
    before = {name: os.environ.get(name) for name in (*_KEYS, *_HIDDEN)}
    os.environ.update(_KEYS)
    for name in _HIDDEN:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
