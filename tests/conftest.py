"""Which tests may run side by side: those that share a Spark session or cluster do not."""

from __future__ import annotations

from pathlib import Path

import pytest

_LONGEST_FIRST = (
    "tests/spark/",
    "tests/integration/worker/test_fleet.py",
    "tests/integration/",
)
_SHARED = {"spark", "cluster"}
"""Fixtures that take long to set up. Tests that start a Spark of their own ask for neither."""
_BY_THE_CLOCK = "test_active_users"
"""In real time, a minute in seconds: no second Spark is to run beside its own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group tests by file, those of one Spark as one; the longest groups begin first."""
    order: dict[str, tuple[bool, int]] = {}
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        fixtures = getattr(item, "fixturenames", ())
        is_alone = _BY_THE_CLOCK in path or not _SHARED.isdisjoint(fixtures)
        is_shared = path.startswith("tests/spark/") and is_alone
        item.add_marker(pytest.mark.xdist_group("spark" if is_shared else Path(path).stem))
        rank = [path.startswith(prefix) for prefix in (*_LONGEST_FIRST, "")]
        order[item.nodeid] = not is_shared, rank.index(True)
    items.sort(key=lambda item: order[item.nodeid])
