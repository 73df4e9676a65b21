"""Whether an endpoint can be reached: by name, by TCP, by TLS, or through a proxy."""

from __future__ import annotations

import os
import socket
import ssl
from urllib.parse import urlsplit

from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from sparkinesis.monitor.doctor.finding import Finding, ok, problem

TIMEOUT = 5.0
"""Seconds for each step."""


def reach(check: str, url: str, timeout: float = TIMEOUT) -> Finding:
    """Connect to an endpoint, or to the proxy that requests to it go through."""
    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    target = urlsplit(proxy if proxy and "://" in proxy else f"http://{proxy}" if proxy else url)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    where = f"the proxy {host}:{port}" if proxy else f"{host}:{port}"
    unset = (
        " The proxy is from the environment (HTTPS_PROXY, HTTP_PROXY); NO_PROXY names the hosts "
        "that are called without one."
        if proxy
        else ""
    )
    try:
        with socket.create_connection((host, port), timeout) as connection:
            if target.scheme == "https":
                _shake_hands(connection, host)
    except socket.gaierror as error:
        return problem(
            check,
            f"the name {host!r} has no address: {error.strerror or error}",
            "Check the region and the endpoint for a typing error, and this machine's DNS; in a "
            f"private network, the service's VPC endpoint.{unset}",
        )
    except ssl.SSLError as error:
        return problem(
            check,
            f"{where} does not pass for {host!r}: {error}",
            "If a proxy or a private endpoint has a certificate of its own, name its authority "
            "by the environment variable AWS_CA_BUNDLE.",
        )
    except OSError as error:
        return problem(
            check,
            f"nothing answers at {where}: {error}",
            "Check the endpoint and its port, and that routes, security groups and firewalls let "
            f"this machine through.{unset}",
        )
    return ok(check, f"{where} can be reached" + (f", for {url}" if proxy else ""))


def _shake_hands(connection: socket.socket, host: str) -> None:
    authorities = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    trusted = ssl.create_default_context(cafile=authorities or get_cert_path(verify=True))
    with trusted.wrap_socket(connection, server_hostname=host):
        pass
