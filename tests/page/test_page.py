"""The live page in a real browser: what it shows of a running application, and what it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from typer.testing import CliRunner

from sparkinesis.cli.app import app as cli
from sparkinesis.local import LocalServer
from sparkinesis.ui.columns import CLOSED, UNREAD
from sparkinesis.ui.worker_urls import WorkerUrls
from sparkinesis.worker.application import Application
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.ui.conftest import Serve
from tests.journal import Journal, Journaling
from tests.pace import seconds
from tests.streams import merge_neighbours, put_at, split

if TYPE_CHECKING:
    from tests.page.browser import Browser

Start = Callable[[Application], Worker]
Make = Callable[..., Application]
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
THIRD, FOURTH, FIFTH = (f"shardId-00000000000{n}" for n in (2, 3, 4))
SHARD, OWNER, STATE, BEHIND, KBPS, RECORDS, CHECKPOINT, PARENTS, CHILDREN = range(9)


def shards(browser: Browser) -> dict[str, list[str]]:
    return {row[SHARD]: row for row in browser.table("shard-table")}


def top(server: LocalServer, stream: str) -> dict[str, Any]:
    place = ["--region", "us-east-1", "--endpoint", server.endpoint_url]
    result = CliRunner().invoke(
        cli, ["top", stream, "--stream", stream, "--once", "--json", *place]
    )
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_it_shows_what_table_and_stream_say(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal,
    stream: str, kinesis: Any, server: LocalServer,
) -> None:  # fmt: skip
    """One shard is checkpointed, the other is not: the same as `top` says."""

    def checkpoint(batch: Any, checkpointer: Any) -> None:
        if b"done" in [record.data for record in batch.records]:
            checkpointer.checkpoint()

    start(application(worker_id="w-1", processor=lambda: Journaling(journal, checkpoint)))
    done = put_at(kinesis, stream, b"done")
    put_at(kinesis, stream, b"late", 2**128 - 1)
    journal.wait_for_data(b"done", b"late")
    browser.open(serve().url)
    browser.await_page()
    browser.until(lambda: shards(browser)[FIRST][CHECKPOINT].endswith(f"{done[-10:]}:0"))
    row = shards(browser)[SECOND]
    assert row[OWNER : STATE + 1] == ["w-1", "held"]
    assert row[CHECKPOINT] == "TRIM_HORIZON"
    browser.until(lambda: shards(browser)[FIRST][BEHIND] == "0.0 s")
    browser.until(lambda: shards(browser)[SECOND][BEHIND] not in {"-", "0.0 s"})
    first, second = top(server, stream)["shards"]
    assert first["checkpoint"]["sequence_number"] == done
    assert [first["millis_behind_latest"], second["owner"]] == [0, "w-1"]
    (worker,) = browser.table("worker-table")
    assert worker[:3] == ["w-1", "2", "100 %"]
    # The lag of a shard that is not checkpointed grows, on the page too.
    before = shards(browser)[SECOND][BEHIND]
    browser.until(lambda: shards(browser)[SECOND][BEHIND] != before)
    assert stream in browser.text("heading")
    assert browser.errors() == []


def test_a_shard_splits_and_shards_merge_while_it_is_open(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal,
    stream: str, kinesis: Any,
) -> None:  # fmt: skip
    def checkpoint(batch: Any, checkpointer: Any) -> None:
        checkpointer.checkpoint()

    start(application(worker_id="w-1", processor=lambda: Journaling(journal, checkpoint)))
    browser.open(serve().url)
    browser.await_page()
    browser.until(lambda: len(browser.boxes()) == 2)
    split(kinesis, stream)
    browser.until(lambda: {FIRST, THIRD, FOURTH} <= browser.boxes().keys())
    browser.until(lambda: browser.boxes()[FOURTH]["owner"] == "w-1")
    boxes = browser.boxes()
    parent, low, high = boxes[FIRST], boxes[THIRD], boxes[FOURTH]
    assert abs(parent["right"] - low["left"]) < 1, "the children begin where the parent ends"
    assert abs(low["left"] - high["left"]) < 1
    assert abs(low["top"] - high["bottom"]) < 1, "one above the other"
    assert abs(low["bottom"] - parent["bottom"]) < 1
    assert abs(high["top"] - parent["top"]) < 1
    assert [parent["open"], low["open"], parent["colour"]] == ["closed", "open", CLOSED]
    # The canvas has the colour of the owner, which is that of its row.
    x, y = (low["left"] + low["right"]) / 2, (low["top"] + low["bottom"]) / 2
    assert browser.pixel(x, y) == low["colour"]
    browser.until(lambda: shards(browser).get(THIRD, [""] * 9)[PARENTS] == "0")
    merge_neighbours(kinesis, stream, index=1)  # the upper child with the second shard
    browser.until(lambda: browser.boxes().get(FIFTH, {}).get("owner") == "w-1")
    merged = browser.boxes()[FIFTH]
    assert abs(merged["left"] - browser.boxes()[FOURTH]["right"]) < 1
    browser.until(lambda: shards(browser).get(FIFTH, [""] * 9)[PARENTS] == "1, 3")
    assert browser.errors() == []


def test_a_worker_that_ends_leaves_red_shards(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal, stream: str
) -> None:
    worker = start(application(worker_id="w-1"))
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    browser.open(serve().url)
    browser.await_page()
    browser.until(lambda: shards(browser)[FIRST][OWNER] == "w-1")
    worker.shutdown(seconds(20))
    browser.until(lambda: shards(browser)[FIRST][STATE] == "unowned")
    browser.until(lambda: browser.boxes()[FIRST]["colour"] == UNREAD)
    assert browser.table("worker-table") == []


def test_records_and_failures_of_a_worker(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal,
    stream: str, kinesis: Any,
) -> None:  # fmt: skip
    """By the ``/status`` that the worker serves."""

    def fail_once(batch: Any, checkpointer: Any) -> None:
        if any(record.data == b"<b>odd</b>" for record in batch.records):
            raise ValueError("<b>odd</b> record")

    worker = start(
        application(
            {"http": "127.0.0.1:0"}, worker_id="<i>w</i>",
            processor=lambda: Journaling(journal, fail_once),
        )
    )  # fmt: skip
    put_at(kinesis, stream, b"<b>odd</b>")
    for number in range(20):
        put_at(kinesis, stream, b"%d" % number, 2**128 - 1)
    page = serve(report=WorkerUrls([f"http://127.0.0.1:{port_of(worker)}"]).ask)
    browser.open(page.url)
    browser.await_page()
    browser.until(lambda: "ValueError: <b>odd</b> record" in browser.text("failures"))
    assert "in fail_once" in browser.text("failures"), "the traceback"
    assert "failures" in browser.text("heading")
    number = 100

    def is_counted() -> bool:
        nonlocal number
        number += 1
        put_at(kinesis, stream, b"%d" % number, 2**128 - 1)
        (row,) = browser.table("worker-table")
        return row[0] == "<i>w</i>" and row[5] not in {"-", "0.0"}

    browser.until(is_counted)
    browser.until(lambda: shards(browser)[SECOND][RECORDS] not in {"-"})
    assert browser.run("return all.filter((one) => ['B', 'I'].includes(one.tagName) "
                       "&& /odd|^w$/.test(one.textContent)).length") == 0, "escaped"  # fmt: skip


def port_of(worker: Worker) -> int:
    port = worker.http_port
    assert port is not None
    return port


def test_a_filter_and_an_order_by_lag(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal, stream: str,
    kinesis: Any,
) -> None:  # fmt: skip
    start(application(worker_id="w-1"))
    put_at(kinesis, stream, b"late", 2**128 - 1)
    journal.wait_for_data(b"late")
    browser.open(serve().url)
    browser.await_page()
    browser.until(lambda: shards(browser)[SECOND][BEHIND] not in {"-", "0.0 s"})
    browser.run("""Bokeh.documents[0].get_model_by_name("filter").value_input = "0001 held" """)
    browser.until(lambda: list(shards(browser)) == [SECOND])
    browser.run("""Bokeh.documents[0].get_model_by_name("filter").value_input = "" """)
    browser.until(lambda: list(shards(browser)) == [FIRST, SECOND])
    browser.run(
        """const title = all.find((one) => one.classList.contains("slick-column-name")
             && one.textContent == "behind" && one.getRootNode().host.textContent !== "x"
             && one.closest(".slick-header").querySelectorAll(".slick-column-name").length > 8)
           title.click()"""
    )
    browser.run(
        """const title = all.find((one) => one.classList.contains("slick-column-name")
             && one.textContent == "behind"
             && one.closest(".slick-header").querySelectorAll(".slick-column-name").length > 8)
           title.click()"""
    )
    browser.until(lambda: next(iter(shards(browser))) == SECOND)


def test_an_operator_moves_the_application_and_releases_a_lease(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal,
    stream: str, dynamodb: Any,
) -> None:  # fmt: skip
    start(application(worker_id="w-1"))
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    browser.open(serve().url)
    browser.await_page()
    browser.until(lambda: shards(browser)[SECOND][OWNER] == "w-1")

    # A click on a shard names its lease in the form. The dialog says what will be done.
    browser.run(
        "all.filter((one) => one.classList.contains('slick-cell')"
        " && one.textContent.trim() == arguments[0])[0].click()", SECOND,
    )  # fmt: skip
    browser.until(lambda: browser.element("#lease").get_property("value") == SECOND)
    browser.element("#release button").click()
    browser.until(lambda: browser.is_shown("plan"))
    assert browser.element("#question").text == f"Take {SECOND} from w-1?"
    browser.element("#cancel").click()
    assert not browser.is_shown("plan")
    assert (SECOND, "lease_lost") not in journal.calls(), "it was cancelled"
    browser.element("#release button").click()
    browser.until(lambda: browser.is_shown("plan"))
    browser.element("#confirm").click()
    browser.until(lambda: browser.element("#done").text.startswith(f"Released {SECOND}"))
    journal.wait(lambda: (SECOND, "lease_lost") in journal.calls())

    browser.element("#to").send_keys("nowhere")
    browser.element("#reset button").click()
    browser.until(lambda: "'nowhere'" in browser.element("#done").text)
    browser.element("#to").clear()
    browser.element("#to").send_keys("latest")
    browser.element("#reset button").click()
    browser.until(lambda: browser.is_shown("plan"))
    assert browser.element("#confirm").text == "Move 2 leases"
    browser.element("#confirm").click()
    browser.until(lambda: browser.element("#done").text == f"Moved 2 leases of {stream}.")


def test_without_the_token_it_is_read_only_and_it_asks_nobody_else(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal
) -> None:
    start(application(worker_id="w-1"))
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    page = serve()
    plain = page.url.partition("#")[0]
    browser.open(plain)
    browser.await_page()
    browser.until(lambda: shards(browser)[FIRST][OWNER] == "w-1")
    assert not browser.is_shown("operate")
    assert browser.is_shown("read-only")
    browser.open("about:blank")
    browser.open(page.url)
    browser.await_page()
    assert browser.is_shown("operate")
    assert not browser.is_shown("read-only")
    place = urlsplit(plain).netloc
    assert browser.hosts() == {f"http://{place}", f"ws://{place}"}
    assert browser.errors() == []


def test_it_says_that_nobody_serves_it_any_more(
    browser: Browser, serve: Serve, application: Make, start: Start, journal: Journal
) -> None:
    start(application(worker_id="w-1"))
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    page = serve()
    browser.open(page.url)
    browser.await_page()
    assert not browser.is_shown("gone")
    page.close()
    browser.until(lambda: browser.is_shown("gone"))
