"""The TLS of direct connections is botocore's."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from botocore.exceptions import SSLError
from botocore.httpsession import create_urllib3_context, get_cert_path

from sparkinesis.stream.calls.direct import tls
from sparkinesis.stream.calls.direct.tls import own_certificates, tls_context, trusted

ALIKE = (
    *("options", "protocol", "minimum_version", "maximum_version", "verify_mode", "verify_flags"),
    *("post_handshake_auth", "keylog_filename", "hostname_checks_common_name", "security_level"),
)


@pytest.fixture(autouse=True)
def no_contexts() -> Iterator[None]:
    tls._context.cache_clear()
    yield
    tls._context.cache_clear()


@pytest.mark.parametrize("key_log", [None, "keys"])
@pytest.mark.parametrize("verifies", [True, False])
def test_a_context_is_that_of_botocore(
    verifies: bool, key_log: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)
    if key_log is not None:
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / key_log))
    own = tls_context(verifies or "", "https://test")
    botocores = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE)
    for name in ALIKE:
        assert getattr(own, name) == getattr(botocores, name), name
    assert own.get_ciphers() == botocores.get_ciphers()
    assert own.check_hostname is verifies
    assert bool(own.get_ca_certs()) is verifies


def test_the_certificates_are_those_of_botocore() -> None:
    assert own_certificates() == get_cert_path(verify=True)


def test_without_certifi_they_are_in_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "certifi", None)
    assert Path(own_certificates()).is_file()
    assert Path(own_certificates()).parent.name == "botocore"


def test_clients_share_a_context_and_its_certificates() -> None:
    assert tls_context(True, "https://one.test") is tls_context(True, "https://other.test")


def test_a_bundle_that_has_changed_is_read_again(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(own_certificates()).read_bytes())
    os.utime(bundle, ns=(1, 1))
    first = tls_context(str(bundle), "https://test")
    assert tls_context(str(bundle), "https://test") is first
    os.utime(bundle, ns=(2, 2))
    assert tls_context(str(bundle), "https://test") is not first


def test_a_bundle_that_is_not_there_is_an_error_of_the_endpoint(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(SSLError, match="https://test"):
            tls_context(str(tmp_path / "gone.pem"), "https://test")


@pytest.mark.parametrize(
    ("configured", "requests", "expected"),
    [("a", "b", "a"), (None, "b", "b"), (None, None, True), ("", "b", "")],
)
def test_the_bundle_of_the_settings_goes_first(
    configured: str | None,
    requests: str | None,
    expected: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    if requests is not None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", requests)
    session = Mock(**{"get_config_variable.return_value": configured})
    assert trusted(session) == expected
