from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.metrics.health.http_address import Address, is_own_host, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        (":9400", "127.0.0.1", 9400, True),
        ("127.0.0.1:9400", "127.0.0.1", 9400, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:9400", "::1", 9400, True),
        ("0.0.0.0:9400", "0.0.0.0", 9400, False),
        ("[::]:65535", "::", 65535, False),
        ("10.1.2.3:80", "10.1.2.3", 80, False),
        ("pod-1.example.com:80", "pod-1.example.com", 80, False),
    ],
)
def test_an_address_is_on_loopback_unless_told_otherwise(
    text: str, host: str, port: int, is_loopback: bool
) -> None:
    address = parse_address("http", text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)


@pytest.mark.parametrize(
    "text", ["", "9400", ":", "localhost", ":65536", ":-1", "http://localhost:9400", 9400, "::1:9"]
)
def test_anything_else_is_an_error_that_shows_what_to_give(text: object) -> None:
    with pytest.raises(OptionError, match=r"http is .*'127\.0\.0\.1:9400'"):
        parse_address("http", text)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:9400", True),
        ("localhost", True),
        ("LOCALHOST.:1", True),
        ("[::1]:9400", True),
        ("127.8.8.8", True),
        (None, True),
        ("evil.example:9400", False),
        ("localhost.evil.example", False),
        ("10.0.0.1", False),
        ("user@localhost", False),
        ("", False),
    ],
)
def test_a_server_on_loopback_answers_to_its_own_names_only(host: str | None, is_own: bool) -> None:
    assert is_own_host(host, Address("127.0.0.1", 9400)) is is_own


def test_a_server_on_a_network_answers_to_any_name() -> None:
    assert is_own_host("pod.example", Address("0.0.0.0", 9400))
