"""The room for bodies: who waits, who is served, and what is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from sparkinesis.local.admission.bodies import (
    MAX_BODY,
    SMALL_BODY,
    Bodies,
    BodyRefusedError,
    ClientLeftError,
    Room,
)

FOREVER = 1e6


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


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


def test_room_is_taken_and_given_back_in_turn() -> None:
    async def test() -> None:
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

    run(test)


def test_one_that_waits_too_long_leaves_the_line_to_others() -> None:
    async def test() -> None:
        room = Room(10)
        await room.take(5, FOREVER)
        big = asyncio.create_task(room.take(8, 0.01))
        small = asyncio.create_task(room.take(5, FOREVER))
        with pytest.raises(TimeoutError):
            await big
        await small
        room.give_back(10)
        await asyncio.wait_for(room.take(10, FOREVER), FOREVER)

    run(test)


@pytest.mark.parametrize("is_served", [False, True])
def test_one_that_is_cancelled_takes_nothing(is_served: bool) -> None:
    async def test() -> None:
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

    run(test)


def test_a_body_is_joined_and_holds_its_room_while_it_is_served() -> None:
    async def test() -> None:
        bodies = Bodies(large=200_000, wait_s=0.01)
        async with bodies.whole(sent(b"a" * 99_999, b"b"), 100_000) as body:
            assert body == b"a" * 99_999 + b"b"
            with pytest.raises(BodyRefusedError) as refused:
                async with bodies.whole(sent(b"c"), 100_001):
                    raise AssertionError
            assert refused.value.status == 503
            async with bodies.whole(sent(b"c" * 100_000), 100_000):
                pass
        async with bodies.whole(sent(b"c"), 200_000):
            pass

    run(test)


def test_small_bodies_do_not_wait_for_large_ones() -> None:
    async def test() -> None:
        bodies = Bodies(small=SMALL_BODY, large=100_000, wait_s=0.01)
        async with bodies.whole(sent(b"a"), 100_000):
            async with bodies.whole(sent(b"b"), SMALL_BODY):
                with pytest.raises(BodyRefusedError):
                    async with bodies.whole(sent(b"c"), 1):
                        raise AssertionError
            with pytest.raises(BodyRefusedError):
                async with bodies.whole(sent(b"c"), SMALL_BODY + 1):
                    raise AssertionError

    run(test)


def test_an_undeclared_length_is_small_until_it_is_not() -> None:
    async def test() -> None:
        bodies = Bodies(small=SMALL_BODY, large=MAX_BODY, wait_s=0.01)
        async with bodies.whole(sent(bytes(SMALL_BODY), b"a"), None):
            for length in (1, SMALL_BODY + 1):
                with pytest.raises(BodyRefusedError):
                    async with bodies.whole(sent(b"b"), length):
                        raise AssertionError
        async with bodies.whole(sent(b"a", bytes(SMALL_BODY - 1)), None):
            with pytest.raises(BodyRefusedError):
                async with bodies.whole(sent(b"b"), 1):
                    raise AssertionError
            async with bodies.whole(sent(b"b"), MAX_BODY):
                with pytest.raises(BodyRefusedError):
                    async with bodies.whole(sent(b"b"), None):
                        raise AssertionError

    run(test)


def test_a_body_that_does_not_arrive_is_given_up_and_its_room_is_free() -> None:
    async def test() -> None:
        bodies = Bodies(large=100_000, read_s=0.01, wait_s=0.01)
        with pytest.raises(BodyRefusedError, match=r"within 0\.01 seconds") as refused:
            async with bodies.whole(sent(b"a", b""), 100_000):
                raise AssertionError
        assert refused.value.status == 408
        async with bodies.whole(sent(b"c"), 100_000):
            await turns()

    run(test)


def test_a_server_that_stops_is_not_taken_for_a_slow_client() -> None:
    async def test() -> None:
        async def read() -> None:
            async with Bodies(read_s=FOREVER).whole(sent(b"a", b""), 10):
                raise AssertionError

        task = asyncio.create_task(read())
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test)


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    async def test() -> None:
        async def receive() -> dict[str, Any]:
            raise AssertionError

        with pytest.raises(BodyRefusedError, match="at most 32 MiB") as refused:
            async with Bodies().whole(receive, MAX_BODY + 1):
                raise AssertionError
        assert refused.value.status == 413

    run(test)


def test_an_undeclared_body_over_the_limit_is_refused() -> None:
    async def test() -> None:
        half = bytes(MAX_BODY // 2)
        async with Bodies().whole(sent(half, half), None) as body:
            assert len(body) == MAX_BODY
        with pytest.raises(BodyRefusedError) as refused:
            async with Bodies().whole(sent(half, half, b"x", b""), None):
                raise AssertionError
        assert refused.value.status == 413

    run(test)


def test_a_client_that_leaves_gives_its_room_back() -> None:
    async def test() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        bodies = Bodies(large=100_000, wait_s=0.01)
        for _ in range(2):
            with pytest.raises(ClientLeftError):
                async with bodies.whole(receive, 100_000):
                    raise AssertionError

    run(test)
