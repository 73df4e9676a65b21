"""Which requests the local server refuses: those of pages of other sites, and for other names."""

from __future__ import annotations

import pytest

from sparkinesis.errors import LocalServerError
from sparkinesis.local.admission.guard import Guard

GUARD = Guard(["kinesis", "Kinesis.Example.com."])


def refusal(**headers: str) -> str | None:
    """Of a request with these headers; names have _ for -."""
    return GUARD.refusal(
        [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    )


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:4566",
        "LocalHost.:4566",
        "kinesis.localhost:80",
        "127.0.0.1:4566",
        "127.0.0.2",
        "192.168.1.7:4566",
        "[::1]:4566",
        "[fe80::1]",
        "kinesis:4566",
        "KINESIS",
        "kinesis.example.com:1",
    ],
)
def test_addresses_localhost_and_given_names_are_own(host: str) -> None:
    assert refusal(host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4566",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "kinesis.evil.example",
        "example.com",
        "other.example.com",
        "[evil.example]",
        "[127.0.0.1",
        "::1",
        "localhost:80@evil.example",
        "evil.example@localhost",
        "evil.example/localhost",
        "localhost evil.example",
        ".localhost:x",
        "",
        ":4566",
    ],
)
def test_other_names_are_refused(host: str) -> None:
    said = refusal(host=host)
    assert said is not None
    assert repr(host) in said
    assert "--host-name" in said


def test_a_long_name_is_cut_in_the_message() -> None:
    said = refusal(host="a" * 50_000)
    assert said is not None
    assert len(said) < 600


@pytest.mark.parametrize("hosts", [[], [b"localhost", b"evil.example"], [b"localhost"] * 2])
def test_a_request_has_one_host(hosts: list[bytes]) -> None:
    said = GUARD.refusal([(b"host", host) for host in hosts])
    assert said is not None
    assert f"has {len(hosts)}" in said


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://localhost:3000",  # another program's page, on this machine
        "http://127.0.0.1:4566",
        "https://localhost:4566",
        "http://localhost",
        "chrome-extension://abcdef",
    ],
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    said = refusal(host="localhost:4566", origin=origin)
    assert said is not None
    assert "web page of another site" in said


@pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
def test_a_browser_that_names_another_site_is_refused(site: str) -> None:
    assert refusal(host="localhost:4566", sec_fetch_site=site) is not None
    own = "http://localhost:4566"
    assert refusal(host="localhost:4566", origin=own, sec_fetch_site=site) is not None


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_address_bar_and_the_own_origin_are_no_other_site(site: str) -> None:
    own = "http://LOCALHOST:4566"
    assert refusal(host="localhost:4566", origin=own, sec_fetch_site=site) is None
    assert refusal(host="localhost:4566", sec_fetch_site=site) is None


def test_one_foreign_origin_among_several_is_enough() -> None:
    headers = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    assert GUARD.refusal(headers) is None
    assert GUARD.refusal([*headers, (b"origin", b"http://evil.example")]) is not None
    assert GUARD.refusal([(b"origin", b"http://evil.example"), *headers]) is not None


def test_one_name_may_be_given_as_a_text() -> None:
    assert Guard("kinesis").refusal([(b"host", b"kinesis")]) is None
    assert Guard("kinesis").refusal([(b"host", b"k")]) is not None


@pytest.mark.parametrize(
    "name", ["", "http://kinesis", "kinesis:4566", "*", "a b", "-a", "a..b", "a" * 254, "ä"]
)
def test_a_name_that_is_none_is_an_error_that_shows_one(name: str) -> None:
    with pytest.raises(LocalServerError, match="as in kinesis or kinesis"):
        Guard([name])
