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
        "LocalHost.:4566",
        "kinesis.localhost:80",
        "127.0.0.1:4566",
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
        "evil.example:4566",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "other.example.com",
        "[evil.example]",
        "[127.0.0.1",
        "::1",
        "localhost:80@evil.example",
        "evil.example@localhost",
        ".localhost:x",
        "",
        ":4566",
    ],
)
def test_other_names_are_refused(host: str) -> None:
    said = refusal(host=host) or ""
    assert repr(host) in said
    assert "--host-name" in said


def test_a_long_name_is_cut_in_the_message() -> None:
    assert 0 < len(refusal(host="a" * 50_000) or "") < 600


@pytest.mark.parametrize("hosts", [[], [b"localhost", b"evil.example"], [b"localhost"] * 2])
def test_a_request_has_one_host(hosts: list[bytes]) -> None:
    assert f"has {len(hosts)}" in (GUARD.refusal([(b"host", host) for host in hosts]) or "")


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost:3000",  # another program's page, on this machine
        "http://127.0.0.1:4566",
        "https://localhost:4566",
        "http://localhost",
    ],
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    said = refusal(host="localhost:4566", origin=origin) or ""
    assert "web page of another site" in said


@pytest.mark.parametrize("origin", [{}, {"origin": "http://LOCALHOST:4566"}])
@pytest.mark.parametrize(
    ("site", "is_own"),
    [
        ("cross-site", False),
        ("same-site", False),
        ("", False),
        ("same-origin", True),
        ("none", True),
    ],
)
def test_a_browser_says_whether_the_page_is_of_another_site(
    site: str, is_own: bool, origin: dict[str, str]
) -> None:
    said = refusal(host="localhost:4566", sec_fetch_site=site, **origin)
    assert (said is None) == is_own


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
