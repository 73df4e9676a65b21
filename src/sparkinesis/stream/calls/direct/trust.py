"""The certificates that botocore's clients trust, for connections of our own."""

from __future__ import annotations

import os
import ssl
from typing import Any

from botocore.exceptions import SSLError
from botocore.httpsession import create_urllib3_context, get_cert_path


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
    """Return a context for connections to ``url``. Raises botocore's `SSLError`."""
    context: ssl.SSLContext = create_urllib3_context(
        cert_reqs=ssl.CERT_REQUIRED if trusted else ssl.CERT_NONE
    )
    context.check_hostname = bool(trusted)
    context.set_alpn_protocols(["http/1.1"])
    if trusted:
        try:
            context.load_verify_locations(get_cert_path(trusted))
        except OSError as error:
            raise SSLError(endpoint_url=url, error=error) from error
    return context
