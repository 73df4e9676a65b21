"""TLS between servers and clients: a certificate made for the run, which all of them get to know.

The variables of the environment tell the processes that are started, servers and clients alike.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from tests.certificates import self_signed

CERTIFICATE = "BENCHMARKS_CERTIFICATE"
"""The variable that names the file of the servers' key and certificate."""
BOTO3S = "AWS_CA_BUNDLE"
"""The variable by which boto3, and sparkinesis as it does, are told which certificates to trust."""
_PASSWORD = b"benchmarks"
_STORE = ("trustStore", "trustStorePassword", "trustStoreType")


def certificate() -> str | None:
    """The file of this run's servers; None: they speak HTTP without TLS."""
    return os.environ.get(CERTIFICATE)


def note() -> str:
    """What the title of a table says of it."""
    return "" if certificate() is None else ", over TLS"


def server_options() -> list[str]:
    """The options of `sparkinesis local` that say the same."""
    file = certificate()
    return [] if file is None else ["--certificate", file]


@contextlib.contextmanager
def over_tls() -> Iterator[None]:
    """Servers that are started during the block speak TLS, and clients trust them."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-tls-") as folder:
        file = self_signed(Path(folder))
        before = dict(os.environ)
        os.environ |= {
            CERTIFICATE: str(file),
            BOTO3S: str(file),
            "SSL_CERT_FILE": str(file),  # of kcl-rs, which is in Rust
            "JAVA_TOOL_OPTIONS": _java_options(file),
        }
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


def _java_options(certificate: Path) -> str:
    """The JVM's options of a store that trusts the certificate."""
    store = certificate.with_name("trusted.p12")
    trusted = x509.load_pem_x509_certificate(certificate.read_bytes())
    store.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(trusted, b"run")], BestAvailableEncryption(_PASSWORD)
        )
    )
    values = (str(store), _PASSWORD.decode(), "PKCS12")
    return " ".join(
        f"-Djavax.net.ssl.{name}={value}" for name, value in zip(_STORE, values, strict=True)
    )


def connection(endpoint: str) -> http.client.HTTPConnection:
    """A connection to one of the run's servers."""
    place = urlsplit(endpoint)
    if place.scheme == "http":
        return http.client.HTTPConnection(place.netloc)
    trusting = ssl.create_default_context(cafile=certificate())
    return http.client.HTTPSConnection(place.netloc, context=trusting)
