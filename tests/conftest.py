"""Which tests may run side by side: those that need Spark share one session, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

_SPARK = "tests/spark/"
_LONGEST_FIRST = (_SPARK, "tests/integration/worker/test_fleet.py", "tests/integration/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest begin first."""
    order: dict[str, int] = {}
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        rank = [path.startswith(prefix) for prefix in (*_LONGEST_FIRST, "")]
        order[item.nodeid] = rank.index(True)
    items.sort(key=lambda item: order[item.nodeid])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """A file at a time, and all of Spark as one."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - may be switched off

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _SPARK if nodeid.startswith(_SPARK) else nodeid.partition("::")[0]

    return Scheduling(config, log)
