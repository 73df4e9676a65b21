"""botocore sessions and clients that use the credentials of a `CredentialSource`.

The clients of one source share a session: credentials are found, and a role is assumed, once.

botocore is imported when a session is opened: it takes longer to import than all the rest of a
worker, which mostly needs no session.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sparkinesis.stream.address import CredentialSource, is_loopback
from sparkinesis.stream.calls.answers.guards import Bound
from sparkinesis.stream.calls.default_region import LOCAL_REGION, region_settings
from sparkinesis.stream.calls.direct.connection import connect_timeout

READ_TIMEOUT = 30.0
"""Seconds for each part of an answer."""

NO_OTHERS: Mapping[str, Bound] = MappingProxyType({})

_log = logging.getLogger(__name__)

_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603 - a lock that is held during a fork is never released
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def open_session(source: CredentialSource, region: str | None, endpoint: str | None) -> Any:
    """Return a botocore session for ``region`` whose clients sign with ``source``'s credentials.

    The clients of a process that are opened with the same arguments and environment share it.

    The credentials of a role are fetched at the first call and renewed before they expire: from 15
    minutes before by one thread while the others continue, from 10 minutes before by all
    (botocore's ``RefreshableCredentials``).

    Raises botocore's ``ProfileNotFound``. Errors of STS are raised by the calls of the clients.
    """
    with _opening:
        return _open_session(source, region, endpoint, _environment())


def _environment() -> int:
    """Return a hash of the variables that botocore reads; their values may be secret."""
    return hash(tuple((k, v) for k, v in os.environ.items() if k.startswith("AWS_") or k == "HOME"))


@functools.lru_cache(maxsize=64)
def _open_session(
    source: CredentialSource,
    region: str | None,
    endpoint: str | None,
    environment: int,  # noqa: ARG001 - a part of the key
) -> Any:
    session = _session(source, region, endpoint)
    if is_loopback(endpoint) and session.get_credentials() is None:
        # The local Kinesis accepts any signature, so a development machine needs no credentials.
        session.set_credentials("local", "local")
    if source.role_arn is None:
        return session
    from botocore.config import Config  # noqa: PLC0415
    from botocore.credentials import CredentialResolver  # noqa: PLC0415

    from sparkinesis.stream.calls.direct.by_botocore import bound_calls  # noqa: PLC0415

    sts = session.create_client(
        "sts",
        # The local Kinesis also answers STS calls.
        endpoint_url=source.sts_endpoint or (endpoint if is_loopback(endpoint) else None),
        config=Config(
            retries={"mode": "standard"},
            connect_timeout=10,
            read_timeout=30,
            user_agent_extra="sparkinesis",
        ),
    )
    bound_calls(sts, NO_OTHERS)
    assuming = _session(source, region, endpoint)
    provider = _AssumedRole(sts, source)
    assuming.register_component("credential_provider", CredentialResolver([provider]))
    return assuming


def open_client(
    service: str, source: CredentialSource, region: str | None, endpoint: str | None, **options: Any
) -> Any:
    """Return a botocore client without retries of its own; see `open_session` and `Backoff`.

    options: those of `client_of`.
    """
    return client_of(open_session(source, region, endpoint), service, endpoint, **options)


def client_of(
    session: Any,
    service: str,
    endpoint: str | None,
    *,
    read_timeout: float = READ_TIMEOUT,
    max_pool_connections: int = 64,
    bounds: Mapping[str, Bound] = NO_OTHERS,
) -> Any:
    """Return a botocore client of a session, without retries of its own.

    bounds: those of operations whose answers may be long, or must come soon.
    """
    from botocore.config import Config  # noqa: PLC0415

    from sparkinesis.stream.calls.direct.by_botocore import bound_calls  # noqa: PLC0415

    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=connect_timeout(read_timeout),
        read_timeout=read_timeout,
        max_pool_connections=max_pool_connections,
        user_agent_extra="sparkinesis",
    )
    with _opening:  # two threads may not open clients of one session at once
        client = session.create_client(service, endpoint_url=endpoint, config=config)
    bound_calls(client, bounds)
    return client


def _session(source: CredentialSource, region: str | None, endpoint: str | None) -> Any:
    session = new_session(source.profile)
    if region is None and is_loopback(endpoint) and session.get_config_variable("region") is None:
        region = LOCAL_REGION
    if region is not None:
        session.set_config_variable("region", region)
    return session


def new_session(profile: str | None = None) -> Any:
    """Return a botocore session that shares parsed data files with the others of this process."""
    from botocore.session import Session  # noqa: PLC0415

    from sparkinesis.stream.calls.data_files import share_data_files  # noqa: PLC0415

    session = Session(session_vars=region_settings(), profile=profile)
    share_data_files(session)
    return session


class _AssumedRole:
    """A botocore credential provider for a role. botocore's own needs a profile in a file."""

    METHOD = "sparkinesis-assume-role"
    CANONICAL_NAME = None

    def __init__(self, sts: Any, source: CredentialSource) -> None:
        self.sts = sts
        self.source = source

    def load(self) -> Any:
        from botocore.credentials import DeferredRefreshableCredentials  # noqa: PLC0415

        return DeferredRefreshableCredentials(self._assume, self.METHOD)

    def _assume(self) -> dict[str, str]:
        source = self.source
        request = {"RoleArn": source.role_arn, "RoleSessionName": source.session_name}
        if source.external_id is not None:
            request["ExternalId"] = source.external_id
        given = self.sts.assume_role(**request)["Credentials"]
        expiry: datetime = given["Expiration"]
        _log.info(
            "Assumed the role %s as %s until %s.", source.role_arn, source.session_name, expiry
        )
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": expiry.isoformat(),
        }


def profile_files() -> tuple[str, str]:
    """Return the paths of the configuration file and the credentials file of this process."""
    from botocore.session import Session  # noqa: PLC0415

    session = Session()
    config, credentials = (
        str(session.get_config_variable(name)) for name in ("config_file", "credentials_file")
    )
    return config, credentials
