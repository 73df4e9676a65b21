"""The live page in a real browser: what it shows of a running application, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from sparkinesis.ui.page_columns import CLOSED, UNREAD
from sparkinesis.ui.watcher import WorkerUrls
from sparkinesis.worker.lifecycle.worker import Worker
from tests.command import call, objects, place_of
from tests.integration.ui.conftest import Serve
from tests.journal import Journal, Journaling
from tests.pace import seconds
from tests.streams import merge_neighbours, put_at, split

if TYPE_CHECKING:
    from tests.page.browser import Browser

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
THIRD, FOURTH, FIFTH = (f"shardId-00000000000{n}" for n in (2, 3, 4))
SHARD, OWNER, STATE, BEHIND, KBPS, RECORDS, CHECKPOINT, PARENTS, CHILDREN = range(9)


def shards(browser: Browser) -> dict[str, list[str]]:
    return {row[SHARD]: row for row in browser.table("shard-table")}


@dataclass(frozen=True)
class Scene:
    """An application of two shards on a local Kinesis, and its page."""

    server: LocalServer
    kinesis: Any
    stream: str
    journal: Journal
    serve: Serve
    _application: Callable[..., Application]
    _start: Callable[[Application], Worker]

    def start(
        self, on_records: Any = None, options: dict[str, Any] | None = None, worker_id: str = "w-1"
    ) -> Worker:
        """Start a worker."""
        return self._start(
            self._application(
                options,
                worker_id=worker_id,
                processor=lambda: Journaling(self.journal, on_records),
            )
        )

    def top(self) -> dict[str, Any]:
        """What `sparkinesis top` says."""
        given = ["--stream", self.stream, "--once", "--json", *place_of(self.server)]
        (found,) = objects(call("top", self.stream, *given))
        return found


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    names = ("server", "kinesis", "stream", "journal", "serve", "application", "start")
    return Scene(*map(request.getfixturevalue, names))


def test_it_shows_what_table_and_stream_say(browser: Browser, scene: Scene) -> None:
    """One shard is checkpointed, the other is not: the same as `top` says."""

    def checkpoint(batch: Any, checkpointer: Any) -> None:
        if b"done" in [record.data for record in batch.records]:
            checkpointer.checkpoint()

    scene.start(checkpoint)
    done = put_at(scene.kinesis, scene.stream, b"done")
    put_at(scene.kinesis, scene.stream, b"late", 2**128 - 1)
    scene.journal.wait_for_data(b"done", b"late")
    browser.open(scene.serve().url)
    browser.until(lambda: shards(browser)[FIRST][CHECKPOINT].endswith(f"{done[-10:]}:0"))
    row = shards(browser)[SECOND]
    assert row[OWNER : STATE + 1] == ["w-1", "held"]
    assert row[CHECKPOINT] == "TRIM_HORIZON"
    browser.until(lambda: shards(browser)[FIRST][BEHIND] == "0.0 s")
    browser.until(lambda: shards(browser)[SECOND][BEHIND] not in {"-", "0.0 s"})
    first, second = scene.top()["shards"]
    assert first["checkpoint"]["sequence_number"] == done
    assert [first["millis_behind_latest"], second["owner"]] == [0, "w-1"]
    (worker,) = browser.table("worker-table")
    assert worker[:3] == ["w-1", "2", "100 %"]
    # The lag of a shard that is not checkpointed grows, on the page too.
    before = shards(browser)[SECOND][BEHIND]
    browser.until(lambda: shards(browser)[SECOND][BEHIND] != before)
    assert scene.stream in browser.text("heading")
    assert browser.errors() == []


def test_a_shard_splits_and_shards_merge_while_it_is_open(browser: Browser, scene: Scene) -> None:
    def checkpoint(batch: Any, checkpointer: Any) -> None:
        checkpointer.checkpoint()

    scene.start(checkpoint)
    browser.open(scene.serve().url)
    browser.until(lambda: len(browser.boxes()) == 2)
    split(scene.kinesis, scene.stream)
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
    merge_neighbours(scene.kinesis, scene.stream, index=1)  # the upper child with the second shard
    browser.until(lambda: browser.boxes().get(FIFTH, {}).get("owner") == "w-1")
    assert browser.boxes()[FIFTH]["open"] == "open"
    browser.until(
        lambda: abs(browser.boxes()[FIFTH]["left"] - browser.boxes()[FOURTH]["right"]) < 1
    )
    browser.until(lambda: shards(browser).get(FIFTH, [""] * 9)[PARENTS] == "1, 3")
    assert browser.errors() == []


@pytest.mark.usefixtures("often")
def test_a_person_chooses_the_stream_whose_shards_are_drawn(
    browser: Browser,
    scene: Scene,
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    streams: list[str],
) -> None:
    """Of one stream at first, and then of three whose first shards have the same id."""
    name, wanted = scene.stream, streams[:1]
    start(application(name=name, stream=None, streams=lambda: wanted, worker_id="w-1"))
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 1)
    browser.open(scene.serve(name, names=()).url)
    browser.until(lambda: list(shards(browser)) == [FIRST])
    wanted = streams
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 3)
    split(scene.kinesis, streams[1])
    browser.until(lambda: browser.choices("stream") == streams)
    browser.until(lambda: {row[0] for row in browser.table("shard-table")} == set(streams))
    assert list(browser.boxes()) == [FIRST]
    browser.choose("stream", streams[1])
    browser.until(lambda: browser.boxes().keys() == {FIRST, SECOND, "shardId-000000000002"})
    browser.until(lambda: browser.boxes()[SECOND]["owner"] == "w-1")
    # What happens to another stream is not drawn here, and is when the person returns to it.
    split(scene.kinesis, streams[0])
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 7)
    assert browser.boxes().keys() == {FIRST, SECOND, "shardId-000000000002"}
    browser.choose("stream", streams[2])
    browser.until(lambda: list(browser.boxes()) == [FIRST])
    browser.choose("stream", streams[0])
    browser.until(lambda: len(browser.boxes()) == 3)
    assert browser.errors() == []


def test_a_worker_that_ends_leaves_red_shards(browser: Browser, scene: Scene) -> None:
    worker = scene.start()
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    browser.open(scene.serve().url)
    browser.until(lambda: shards(browser)[FIRST][OWNER] == "w-1")
    worker.shutdown(seconds(20))
    browser.until(lambda: shards(browser)[FIRST][STATE] == "unowned")
    browser.until(lambda: browser.boxes()[FIRST]["colour"] == UNREAD)
    assert browser.table("worker-table") == []


def test_records_and_failures_of_a_worker(browser: Browser, scene: Scene) -> None:
    """By the ``/status`` that the worker serves."""

    def fail_once(batch: Any, checkpointer: Any) -> None:
        if any(record.data == b"<b>odd</b>" for record in batch.records):
            raise ValueError("<b>odd</b> record")

    worker = scene.start(fail_once, {"http": "127.0.0.1:0"}, worker_id="<i>w</i>")
    put_at(scene.kinesis, scene.stream, b"<b>odd</b>")
    for number in range(20):
        put_at(scene.kinesis, scene.stream, b"%d" % number, 2**128 - 1)
    page = scene.serve(report=WorkerUrls([str(worker.http_url)]).ask)
    browser.open(page.url)
    browser.until(lambda: "ValueError: <b>odd</b> record" in browser.text("failures"))
    assert "in fail_once" in browser.text("failures"), "the traceback"
    assert "failures" in browser.text("heading")
    number = 100

    def is_counted() -> bool:
        nonlocal number
        number += 1
        put_at(scene.kinesis, scene.stream, b"%d" % number, 2**128 - 1)
        (row,) = browser.table("worker-table")
        return row[0] == "<i>w</i>" and row[5] not in {"-", "0.0"}

    browser.until(is_counted)
    browser.until(lambda: shards(browser)[SECOND][RECORDS] != "-")
    assert browser.run("return all.filter((one) => ['B', 'I'].includes(one.tagName) "
                       "&& /odd|^w$/.test(one.textContent)).length") == 0, "escaped"  # fmt: skip


def test_a_filter_and_an_order_by_lag(browser: Browser, scene: Scene) -> None:
    scene.start()
    put_at(scene.kinesis, scene.stream, b"late", 2**128 - 1)
    scene.journal.wait_for_data(b"late")
    browser.open(scene.serve().url)
    browser.until(lambda: shards(browser)[SECOND][BEHIND] not in {"-", "0.0 s"})
    browser.run("""Bokeh.documents[0].get_model_by_name("filter").value_input = "0001 held" """)
    browser.until(lambda: list(shards(browser)) == [SECOND])
    browser.run("""Bokeh.documents[0].get_model_by_name("filter").value_input = "" """)
    browser.until(lambda: list(shards(browser)) == [FIRST, SECOND])
    for _ in range(2):
        browser.run(
            """const title = all.find((one) => one.classList.contains("slick-column-name")
                 && one.textContent == "behind"
                 && one.closest(".slick-header").querySelectorAll(".slick-column-name").length > 8)
               title.click()"""
        )
    browser.until(lambda: next(iter(shards(browser))) == SECOND)


def test_an_operator_moves_the_application_and_releases_a_lease(
    browser: Browser, scene: Scene
) -> None:
    scene.start()
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    browser.open(scene.serve().url)
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
    assert (SECOND, "lease_lost") not in scene.journal.calls(), "it was cancelled"
    browser.element("#release button").click()
    browser.until(lambda: browser.is_shown("plan"))
    browser.element("#confirm").click()
    browser.until(lambda: browser.element("#done").text.startswith(f"Released {SECOND}"))
    scene.journal.wait(lambda: (SECOND, "lease_lost") in scene.journal.calls())

    browser.element("#to").send_keys("nowhere")
    browser.element("#reset button").click()
    browser.until(lambda: "'nowhere'" in browser.element("#done").text)
    browser.element("#to").clear()
    browser.element("#to").send_keys("latest")
    browser.element("#reset button").click()
    browser.until(lambda: browser.is_shown("plan"))
    assert browser.element("#confirm").text == "Move 2 leases"
    browser.element("#confirm").click()
    browser.until(lambda: browser.element("#done").text == f"Moved 2 leases of {scene.stream}.")


def test_without_the_token_it_is_read_only_and_it_asks_nobody_else(
    browser: Browser, scene: Scene
) -> None:
    scene.start()
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    page = scene.serve()
    plain = page.url.partition("#")[0]
    browser.open(plain)
    browser.until(lambda: shards(browser)[FIRST][OWNER] == "w-1")
    assert not browser.is_shown("operate")
    assert browser.is_shown("read-only")
    browser.leave_for("about:blank")
    browser.open(page.url)
    assert browser.is_shown("operate")
    assert not browser.is_shown("read-only")
    place = urlsplit(plain).netloc
    assert browser.hosts() == {f"http://{place}", f"ws://{place}"}
    assert browser.errors() == []


def test_it_says_that_nobody_serves_it_any_more(browser: Browser, scene: Scene) -> None:
    scene.start()
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    page = scene.serve()
    browser.open(page.url)
    assert not browser.is_shown("gone")
    page.close()
    browser.until(lambda: browser.is_shown("gone"))
