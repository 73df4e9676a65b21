"""The limit of open files, of which each subscription to a shard needs one."""

from __future__ import annotations

import resource


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as it may be raised without privileges."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
