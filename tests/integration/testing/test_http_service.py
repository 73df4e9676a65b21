"""The documented consumer that calls an HTTP service for each record, with a real service."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from sparkinesis.testing import Result
from tests.documents import ROOT, blocks

URL = "http://127.0.0.1:8080/orders"
(PROGRAM,) = (
    block.text for block in blocks(ROOT / "docs" / "writing-applications.md") if URL in block.text
)
ORDERS = [(f"customer {number % 80}", str(number)) for number in range(400)]


class Service:
    """Answers with the statuses that are given for an order, then with 200."""

    def __init__(self, answers: dict[str, list[int]]) -> None:
        self.taken: dict[str, list[str]] = defaultdict(list)
        """The orders that were answered with 200, by customer."""
        self.calls: Counter[str] = Counter()
        self.most = 0
        """The most calls at a time."""
        self._answers = answers
        self._now = 0

    async def answer(self, request: web.Request) -> web.Response:
        order = await request.text()
        self.calls[order] += 1
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.02)
        self._now -= 1
        status = answers.pop(0) if (answers := self._answers.get(order)) else 200
        if status == 200:
            self.taken[ORDERS[int(order)][0]].append(order)
        return web.Response(status=status)


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """Serve in a thread; yield the URL."""
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_post("/orders", service.answer)
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/orders"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()


def test_orders_reach_the_service(run_application: Callable[..., Result]) -> None:
    service = Service({"7": [503, 503], "9": [400]})
    with serving(service) as url:
        names: dict[str, Any] = {}
        exec(PROGRAM.replace(URL, url), names)
        result = run_application(names["application"], ORDERS, shards=2)
    assert len(result.processed) == 400
    assert [record.data for record in names["refused"]] == [b"9"]
    assert {order for orders in service.taken.values() for order in orders} == {
        order for _, order in ORDERS if order != "9"
    }
    for orders in service.taken.values():
        assert orders == sorted(orders, key=int), "in order for each customer"
    assert {order: calls for order, calls in service.calls.items() if calls > 1} == {"7": 3}
    assert 25 < service.most <= 50
