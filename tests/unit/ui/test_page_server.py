"""Which requests the page takes."""

from __future__ import annotations

import pytest

from sparkinesis.ui.page_server import is_local, refusal_of_order

GOOD = {
    "Host": "127.0.0.1:9410",
    "Origin": "http://127.0.0.1:9410",
    "Content-Type": "application/json; charset=utf-8",
    "X-Sparkinesis-Token": "secret",
}


@pytest.mark.parametrize(
    "host",
    [
        None, "", "evil.example", "127.0.0.1.evil.example:9410", "localhost.evil.example",
        "127.0.0.1@evil.example", "evil.example@127.0.0.1", "127.0.0.1:port", "127.0.0.1/evil",
        "127.0.0.1:9410 evil.example", "0.0.0.0:9410", "[::1", "127.0.0.1#x", "192.168.0.7:9410",
    ],
)  # fmt: skip
def test_other_hosts(host: str | None) -> None:
    assert not is_local(host)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"Origin": "http://evil.example"}, "does not come from this page"),
        ({"Origin": ""}, "does not come from this page"),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, "does not come from this page"),
        ({"Content-Type": "text/plain"}, "not JSON"),
        ({"Content-Type": ""}, "not JSON"),
        ({"X-Sparkinesis-Token": ""}, "does not have the token"),
        ({"X-Sparkinesis-Token": "secre"}, "does not have the token"),
        ({"X-Sparkinesis-Token": "sécret"}, "does not have the token"),
    ],
)
def test_orders_that_are_refused(changed: dict[str, str], why: str) -> None:
    assert why in str(refusal_of_order({**GOOD, **changed}, "secret"))
