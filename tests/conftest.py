"""Which tests may run side by side: those that need Spark share one session, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

_LONGEST_FIRST = ("tests/spark/", "tests/integration/worker/test_fleet.py", "tests/integration/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group tests by file, those of Spark as one; the longest groups begin first."""
    order: dict[str, int] = {}
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        is_of_spark = path.startswith("tests/spark/")
        item.add_marker(pytest.mark.xdist_group("spark" if is_of_spark else Path(path).stem))
        rank = [path.startswith(prefix) for prefix in (*_LONGEST_FIRST, "")]
        order[item.nodeid] = rank.index(True)
    items.sort(key=lambda item: order[item.nodeid])
