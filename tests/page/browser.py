"""A headless Chromium that shows a page, and what a person sees in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.select import Select

from tests.pace import Deadline

_ALL = """
function below(root, found) {
  for (const one of root.querySelectorAll("*")) {
    found.push(one)
    if (one.shadowRoot) below(one.shadowRoot, found)
  }
  return found
}
const all = below(document, [])
const seen = (one) => one.checkVisibility()
"""
"""All elements, also those of Bokeh's parts, which lie in shadow trees."""


def missing() -> str | None:
    """Return what is missing to run a browser; None if nothing is."""
    for programs in (("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)):
        if not any(map(shutil.which, programs)):
            return f"there is no {programs[0]}: apt install chromium chromium-driver"
    return None


class Browser:
    """Chromium with one page. Close it."""

    def __init__(self, width: int = 1400, height: int = 1800) -> None:
        options = webdriver.ChromeOptions()
        found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
        options.binary_location = next(filter(None, found))
        for one in (
            "--headless=new",
            "--no-sandbox",  # in a container, root has no sandbox
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
        ):
            options.add_argument(one)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._driver: Any = webdriver.Chrome(
            options=options, service=Service(shutil.which("chromedriver"))
        )

    def close(self) -> None:
        self._driver.quit()

    def open(self, url: str) -> None:
        """Open an address, and wait until the page is there, with its map."""
        self.leave_for(url)
        self.until(
            lambda: self.run("return window.Bokeh !== undefined && Bokeh.documents.length == 1")
        )
        self.until(lambda: self.run("return Bokeh.documents[0].is_idle"))

    def leave_for(self, url: str) -> None:
        self._driver.get(url)

    def run(self, script: str, *given: Any) -> Any:
        """Return what a script returns, which has ``all`` and ``seen``."""
        return self._driver.execute_script(_ALL + script, *given)

    def table(self, name: str) -> list[list[str]]:
        """The cells of a table's visible rows, row by row, from the top."""
        found = self.run(
            """
            const table = Bokeh.documents[0].get_model_by_name(arguments[0])
            const view = Bokeh.index.find_one_by_id(table.id)
            return [...view.shadow_el.querySelectorAll(".slick-row")]
              .sort((one, two) => parseInt(one.style.top) - parseInt(two.style.top))
              .map((row) => [...row.querySelectorAll(".slick-cell")].map((cell) => cell.innerText))
            """,
            name,
        )
        return [[str(cell).strip() for cell in row] for row in found]

    def text(self, name: str) -> str:
        """The text of a part of the page, by the name of its model."""
        return str(
            self.run(
                """
                const part = Bokeh.documents[0].get_model_by_name(arguments[0])
                const view = Bokeh.index.find_one_by_id(part.id)
                return view ? view.shadow_el.textContent : ""
                """,
                name,
            )
        )

    def choices(self, name: str) -> list[str]:
        """The options of a field of the page, by the name of its model."""
        return [str(option.text) for option in self._field(name).options]

    def choose(self, name: str, option: str) -> None:
        """Choose an option of a field, as a person does."""
        self._field(name).select_by_visible_text(option)

    def _field(self, name: str) -> Select:
        return Select(
            self.run(
                """
                const field = Bokeh.documents[0].get_model_by_name(arguments[0])
                return Bokeh.index.find_one_by_id(field.id).shadow_el.querySelector("select")
                """,
                name,
            )
        )

    def boxes(self) -> dict[str, dict[str, Any]]:
        """The boxes of the map, by shard, as they are drawn: in pixels, with their colours."""
        drawn = self.run(
            """
            const plot = Bokeh.documents[0].get_model_by_name("shard-map")
            const view = Bokeh.index.find_one_by_id(plot.id)
            const boxes = view.model.renderers.find((one) => one.name == "boxes")
            const drawn = view.renderer_views.get(boxes).glyph
            const colours = boxes.data_source.data[boxes.glyph.fill_color.field]
            return Array.from(boxes.data_source.data.shard, (shard, i) => ({
              shard, left: drawn.sleft[i], right: drawn.sright[i], top: drawn.stop[i],
              bottom: drawn.sbottom[i], colour: colours[i],
              owner: boxes.data_source.data.owner[i], open: boxes.data_source.data.is_open[i],
            }))
            """
        )
        return {one["shard"]: one for one in drawn}

    def pixel(self, x: float, y: float) -> str:
        """The colour that the map's canvas has at a place in it, as #rrggbb."""
        return str(
            self.run(
                """
                const [x, y] = arguments
                const plot = Bokeh.documents[0].get_model_by_name("shard-map")
                const view = Bokeh.index.find_one_by_id(plot.id)
                const canvas = view.canvas_view.primary.canvas
                const ratio = canvas.width / canvas.getBoundingClientRect().width
                const data = canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data
                const hex = (n) => n.toString(16).padStart(2, "0")
                return "#" + [...data].slice(0, 3).map(hex).join("")
                """,
                x,
                y,
            )
        )

    def is_shown(self, element: str) -> bool:
        """True if an element of the frame, by its id, is visible."""
        return bool(self.run("return seen(document.getElementById(arguments[0]))", element))

    def element(self, selector: str) -> Any:
        return self._driver.find_element("css selector", selector)

    def until(self, condition: Any) -> Any:
        """Wait until a condition holds, and return its value."""
        deadline = Deadline(60.0)
        while True:
            found = condition()
            if found:
                return found
            assert not deadline.has_passed(), self.run("return document.body.innerText")

    def errors(self) -> list[str]:
        """What the browser's console has as errors."""
        return [
            one["message"] for one in self._driver.get_log("browser") if one["level"] == "SEVERE"
        ]

    def hosts(self) -> set[str]:
        """The hosts to which the page has sent a request, or connected."""
        found = set()
        for line in self._driver.get_log("performance"):
            event = json.loads(line["message"])["message"]
            params = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                found.add(urlsplit(params["request"]["url"]))
            elif event["method"] == "Network.webSocketCreated":
                found.add(urlsplit(params["url"]))
        return {f"{one.scheme}://{one.netloc}" for one in found if one.scheme != "data"}

    def save(self, path: Path) -> None:
        self._driver.save_screenshot(str(path))
