"""A browser for the tests of a module. Without one they are skipped, or fail if one is required."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.ui.conftest import serve  # noqa: F401 - a fixture
from tests.integration.worker.conftest import (  # noqa: F401 - fixtures
    application,
    credentials,
    dynamodb,
    journal,
    kinesis,
    often,
    retrieval,
    server,
    start,
    stream,
    streams,
    subscription_clock,
)

if TYPE_CHECKING:
    from tests.page.browser import Browser


def _missing() -> str | None:
    for package in ("bokeh", "selenium"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    from tests.page.browser import missing  # noqa: PLC0415 - needs selenium

    return missing()


@pytest.fixture
def browser() -> Iterator[Browser]:
    why = _missing()
    if why is not None and os.environ.get("PAGE_TESTS") == "required":
        pytest.fail(f"The page cannot be tested: {why}.")
    if why is not None:
        pytest.skip(f"THE PAGE IS NOT TESTED: {why}; see `make test-page`")
    from tests.page.browser import Browser  # noqa: PLC0415 - needs selenium

    opened = Browser()
    yield opened
    opened.close()
