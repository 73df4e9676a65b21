"""Which requests the local server refuses: those of pages of other sites, and for other names."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

import pytest

from sparkinesis.errors import LocalServerError
from sparkinesis.local.admission import (
    MAX_BODY,
    SMALL_BODY,
    Bodies,
    BodyRefusedError,
    ClientLeftError,
    Guard,
    Room,
)

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


def test_a_server_with_tls_has_another_origin() -> None:
    guard = Guard(scheme="https")
    host = (b"host", b"localhost:4566")
    assert guard.refusal([host, (b"origin", b"https://localhost:4566")]) is None
    assert guard.refusal([host, (b"origin", b"http://localhost:4566")]) is not None


def test_one_name_may_be_given_as_a_text() -> None:
    assert Guard("kinesis").refusal([(b"host", b"kinesis")]) is None
    assert Guard("kinesis").refusal([(b"host", b"k")]) is not None


@pytest.mark.parametrize(
    "name", ["", "http://kinesis", "kinesis:4566", "*", "a b", "-a", "a..b", "a" * 254, "ä"]
)
def test_a_name_that_is_none_is_an_error_that_shows_one(name: str) -> None:
    with pytest.raises(LocalServerError, match="as in kinesis or kinesis"):
        Guard([name])


FOREVER = 1e6
P = ParamSpec("P")


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **given: P.kwargs) -> None:
        asyncio.run(test(*args, **given))

    return run


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def sent(*chunks: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    """A client that sends these chunks; and nothing more, if the last one is empty."""
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        if not left[0] and len(chunks) > 1:
            await asyncio.Event().wait()
        chunk = left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    return receive


async def refusal_of_bodies(
    bodies: Bodies, length: int | None, receive: Callable[[], Awaitable[dict[str, Any]]]
) -> BodyRefusedError:
    """Why a body is not taken."""
    with pytest.raises(BodyRefusedError) as refused:
        async with bodies.whole(receive, length):
            raise AssertionError
    return refused.value


@asynchronous
async def test_room_is_taken_and_given_back_in_turn() -> None:
    room, order = Room(10), list[str]()

    async def take(name: str, size: int) -> None:
        await room.take(size, FOREVER)
        order.append(name)

    await room.take(6, FOREVER)
    tasks = [asyncio.create_task(take(*each)) for each in (("big", 8), ("small", 2))]
    await turns()
    assert order == [], "the small one does not overtake, or the big one would wait for ever"
    room.give_back(6)
    await turns()
    assert order == ["big", "small"]
    late = asyncio.create_task(take("late", 1))
    await turns()
    assert len(order) == 2
    room.give_back(2)
    await asyncio.gather(*tasks, late)


@asynchronous
async def test_one_that_waits_too_long_leaves_the_line_to_others() -> None:
    room = Room(10)
    await room.take(5, FOREVER)
    big = asyncio.create_task(room.take(8, 0.01))
    small = asyncio.create_task(room.take(5, FOREVER))
    with pytest.raises(TimeoutError):
        await big
    await small
    room.give_back(10)
    await asyncio.wait_for(room.take(10, FOREVER), FOREVER)


@pytest.mark.parametrize("is_served", [False, True])
@asynchronous
async def test_one_that_is_cancelled_takes_nothing(is_served: bool) -> None:
    room = Room(10)
    await room.take(5, FOREVER)
    gone = asyncio.create_task(room.take(8, FOREVER))
    await turns()
    if is_served:
        room.give_back(5)  # its turn has come, and it has not run since
        await room.take(2, FOREVER)
    gone.cancel()
    other = asyncio.create_task(room.take(8 if is_served else 5, FOREVER))
    with pytest.raises(asyncio.CancelledError):
        await gone
    await other
    room.give_back(10)
    await room.take(10, 0)


@asynchronous
async def test_a_body_is_joined_and_holds_its_room_while_it_is_served() -> None:
    bodies = Bodies(large=200_000, wait_s=0.01)
    async with bodies.whole(sent(b"a" * 99_999, b"b"), 100_000) as body:
        assert body == b"a" * 99_999 + b"b"
        assert (await refusal_of_bodies(bodies, 100_001, sent(b"c"))).status == 503
        async with bodies.whole(sent(b"c" * 100_000), 100_000):
            pass
    async with bodies.whole(sent(b"c"), 200_000):
        pass


@asynchronous
async def test_small_bodies_do_not_wait_for_large_ones() -> None:
    bodies = Bodies(small=SMALL_BODY, large=100_000, wait_s=0.01)
    async with bodies.whole(sent(b"a"), 100_000):
        async with bodies.whole(sent(b"b"), SMALL_BODY):
            await refusal_of_bodies(bodies, 1, sent(b"c"))
        await refusal_of_bodies(bodies, SMALL_BODY + 1, sent(b"c"))


@asynchronous
async def test_an_undeclared_length_is_small_until_it_is_not() -> None:
    bodies = Bodies(small=SMALL_BODY, large=MAX_BODY, wait_s=0.01)
    async with bodies.whole(sent(bytes(SMALL_BODY), b"a"), None):
        for length in (1, SMALL_BODY + 1):
            await refusal_of_bodies(bodies, length, sent(b"b"))
    async with bodies.whole(sent(b"a", bytes(SMALL_BODY - 1)), None):
        await refusal_of_bodies(bodies, 1, sent(b"b"))
        async with bodies.whole(sent(b"b"), MAX_BODY):
            await refusal_of_bodies(bodies, None, sent(b"b"))


@asynchronous
async def test_a_body_that_does_not_arrive_is_given_up_and_its_room_is_free() -> None:
    bodies = Bodies(large=100_000, read_s=0.01, wait_s=0.01)
    refused = await refusal_of_bodies(bodies, 100_000, sent(b"a", b""))
    assert refused.status == 408
    assert "within 0.01 seconds" in str(refused)
    async with bodies.whole(sent(b"c"), 100_000):
        await turns()


@asynchronous
async def test_a_server_that_stops_is_not_taken_for_a_slow_client() -> None:
    async def read() -> None:
        async with Bodies(read_s=FOREVER).whole(sent(b"a", b""), 10):
            raise AssertionError

    task = asyncio.create_task(read())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@asynchronous
async def test_a_body_over_the_limit_is_refused_and_unread_if_its_length_is_declared() -> None:
    async def unread() -> dict[str, Any]:
        raise AssertionError

    half = bytes(MAX_BODY // 2)
    async with Bodies().whole(sent(half, half), None) as body:
        assert len(body) == MAX_BODY
    for length, receive in ((MAX_BODY + 1, unread), (None, sent(half, half, b"x", b""))):
        refused = await refusal_of_bodies(Bodies(), length, receive)
        assert refused.status == 413
        assert "at most 32 MiB" in str(refused)


@asynchronous
async def test_a_client_that_leaves_gives_its_room_back() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    bodies = Bodies(large=100_000, wait_s=0.01)
    for _ in range(2):
        with pytest.raises(ClientLeftError):
            async with bodies.whole(receive, 100_000):
                raise AssertionError
