"""The TLS of direct connections: that of botocore's own, without its HTTP library.

botocore imports urllib3 for it, which takes longer than to load the certificates. A test compares
the contexts.
"""

from __future__ import annotations

import functools
import os
import ssl
import sys
from typing import Any

import botocore
from botocore.exceptions import SSLError


def trusted(session: Any) -> Any:
    """Return the path of the certificates to trust, or True for botocore's own.

    The setting is ``ca_bundle`` of ``~/.aws/config``, AWS_CA_BUNDLE or else REQUESTS_CA_BUNDLE.
    An empty one turns verification off, in the versions of botocore that accept it.
    """
    configured = session.get_config_variable("ca_bundle")
    if configured is not None:
        return configured
    found = os.environ.get("REQUESTS_CA_BUNDLE")
    return True if found is None else found


def tls_context(trusted: Any, url: str) -> ssl.SSLContext:
    """Return the context of all connections that trust the same certificates.

    Raises botocore's `SSLError`, for the endpoint ``url``.
    """
    certificates = own_certificates() if trusted is True else trusted
    try:
        return _context(certificates, os.stat(certificates).st_mtime_ns if certificates else 0)  # noqa: PTH116 - pathlib takes long to import
    except OSError as error:
        raise SSLError(endpoint_url=url, error=error) from error


@functools.lru_cache(maxsize=16)
def _context(certificates: str, changed: int) -> ssl.SSLContext:  # noqa: ARG001 - a part of the key
    """Return a context that verifies servers by these certificates; empty: by none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_SSLv2 | ssl.OP_NO_SSLv3 | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.post_handshake_auth = True
    context.check_hostname = bool(certificates)
    context.verify_mode = ssl.CERT_REQUIRED if certificates else ssl.CERT_NONE
    key_log = os.environ.get("SSLKEYLOGFILE")
    if key_log and not sys.flags.ignore_environment:
        context.keylog_filename = key_log
    context.set_alpn_protocols(["http/1.1"])
    if certificates:
        context.load_verify_locations(certificates)
    return context


def own_certificates() -> str:
    """Return the path of certifi's certificates, or botocore's where certifi is not installed."""
    try:
        from certifi import where  # noqa: PLC0415
    except ImportError:
        return os.path.join(os.path.dirname(botocore.__file__), "cacert.pem")  # noqa: PTH118, PTH120 - a text
    return str(where())
