"""The region of calls that are given none: found by botocore, in this process."""

from __future__ import annotations

import functools
import os
from typing import Any

from botocore.exceptions import BotoCoreError, UnknownRegionError

LOCAL_REGION = "us-east-1"
"""The region of a local endpoint where no region is set at all."""

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""In the order of AWS's command line. The other SDKs read the first only, botocore the second."""
_VARIABLES = (*REGION_VARIABLES, "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "HOME")
"""The environment variables that choose the region."""


def region_settings() -> dict[str, Any]:
    """Return the ``session_vars`` of a botocore session that takes its region from AWS_REGION, too.

    A variable that is empty counts as not set.
    """
    return {"region": ("region", list(filter(os.environ.get, REGION_VARIABLES)), None, None)}


def default_region(profile: str | None, *, is_local: bool) -> tuple[str | None, str]:
    """Return the region of a client that is given none, and where it comes from, for an error.

    The region is None if there is none: then calls raise botocore's ``NoRegionError``.
    ``is_local``: the endpoint is on this machine.
    """
    environment = tuple(os.environ.get(name) for name in _VARIABLES)
    return _default_region(profile, is_local, environment)


@functools.lru_cache(maxsize=64)
def _default_region(
    profile: str | None,
    is_local: bool,
    environment: tuple[str | None, ...],  # noqa: ARG001 - a part of the key
) -> tuple[str | None, str]:
    from botocore.session import Session  # noqa: PLC0415 - slow to import

    session = Session(
        session_vars=region_settings(), include_builtin_handlers=False, profile=profile
    )
    try:
        region: str | None = session.get_config_variable("region")
    except BotoCoreError:  # no such profile: the first call raises an error that says so
        return None, "the profile cannot be read"
    if region is None:
        return (LOCAL_REGION, "the default of a local endpoint") if is_local else (None, "none set")
    for name in filter(os.environ.get, REGION_VARIABLES):
        return region, f"from the environment variable {name}"
    file = session.get_config_variable("config_file")
    return region, f"from the profile {session.profile or 'default'!r} in {file}"


@functools.lru_cache(maxsize=64)
def partition_of(region: str) -> str:
    """Return the partition of a region, which its ARNs name: ``aws``, ``aws-cn``, ..."""
    from botocore.session import Session  # noqa: PLC0415 - slow to import

    from sparkinesis.stream.calls.data_files import share_data_files  # noqa: PLC0415 - slow to import

    session = Session(include_builtin_handlers=False)
    share_data_files(session)
    try:
        return str(session.get_partition_for_region(region))
    except UnknownRegionError:
        return "aws"
