"""Keeps the memory of one page for the next one, in a Python worker of Spark.

A page and its records take up to 40 MB, which glibc returns to the operating system after each page
and then fetches back, 4 KiB at a time.
"""

from __future__ import annotations

import ctypes
import functools
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)."""

KEPT = 64 << 20
"""The bytes that may stay free at the end of a heap."""

LARGEST = 32 << 20
"""The largest block that a heap holds; glibc's own limit for a threshold that adapts itself."""

_USERS_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user tunes glibc."""


@functools.cache
def keep_freed_memory() -> bool:
    """Keep up to `KEPT` bytes of freed memory in this process; return True if that is possible.

    Only glibc can. The user's own settings of glibc stay as they are.
    """
    if any(name in os.environ for name in _USERS_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST))
