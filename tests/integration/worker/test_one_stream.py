"""A table and a query of version 0.1.0, which read one stream only: both go on as they would have.

`tests.one_stream` says how that version wrote the fixture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.one_stream import STARTS, Services, decoded, go_on, read_on, services, take_over

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "one-stream-0.1.0.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def at() -> Iterator[Services]:
    with services() as running:
        running.go_on()
        yield running


@pytest.mark.parametrize("kind", STARTS)
def test_a_worker_goes_on_in_the_table_of_0_1_0_as_0_1_0_did(at: Services, kind: str) -> None:
    """The same records, and the same rows afterwards, attribute by attribute.

    But for the fencing token and the name of the stream, which that version did not write.
    """
    found = go_on(at, kind, decoded(GOLDEN[kind]["before"]))
    assert found["records"] == GOLDEN[kind]["after"]["records"]
    assert found["prepared"] == GOLDEN[kind]["after"]["prepared"]
    for name in ("fencingToken", "streamMark"):
        news = [row.pop(name, None) for row in found["rows"]]
        assert news.count(None) < len(news)
    assert found["rows"] == decoded(GOLDEN[kind]["after"]["rows"])


@pytest.mark.parametrize("kind", STARTS)
def test_a_query_begins_in_the_table_of_0_1_0_as_0_1_0_did(at: Services, kind: str) -> None:
    found = take_over(at, kind, decoded(GOLDEN[kind]["before"]))
    assert found == GOLDEN[kind]["query"]


@pytest.mark.parametrize("kind", STARTS)
def test_a_query_goes_on_from_an_offset_of_0_1_0(at: Services, kind: str) -> None:
    resumed = at.query(kind)
    resumed.checkpoint = GOLDEN[kind]["query"]["offset"]
    assert read_on(resumed) == GOLDEN[kind]["query"]["rows"]
