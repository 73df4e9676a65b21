"""A test that hangs fails by its name, with the stacks of all threads; see `LIMIT`.

Its process ends with it, as nothing else ends a hang in any thread, in a greenlet, in a C function,
or in an example that hypothesis plays again. Under xdist, another process runs what follows.
"""

from __future__ import annotations

import faulthandler
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pace import AT_START, slowness

LIMIT = 120.0
"""Seconds for a test, with the fixtures that are set up and torn down for it, on an idle machine.

The marker ``limit`` gives a test another one.
"""
SPARK_LIMIT = 300.0
"""Seconds for a test in `tests/spark`, which starts JVMs."""
_SPARK = Path(__file__).parent / "spark"
LONG_LIMIT = 1200.0
"""Seconds for a test of the long form."""
_GRACE = 10.0
"""Seconds until a process ends whose interpreter does not: a C function may hold its lock."""


def configure(config: pytest.Config) -> None:
    """Watch the tests of this process, and hear of those of others."""
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:
        out = os.open(given["noted"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        # The test's own seconds are those of its process: several begin at once, and are slow.
        factor = max(AT_START, given["slowness"])
        config.pluginmanager.register(_Watch(out, factor, notes=True))
        return
    # Before the processes begin, which make the machine slow.
    factor = slowness(rounds=4)
    notes = config.stash[_NOTES] = _Notes(factor)
    config.add_cleanup(notes.folder.cleanup)
    config.pluginmanager.register(notes)
    config.pluginmanager.register(_Watch(os.dup(2), factor, notes=False))


def ended_with(config: pytest.Config, node: Any) -> str | None:
    """Return the test that an xdist process was running when it ended."""
    return config.stash[_NOTES].of(node).partition("\n")[0] or None


def _limits(item: pytest.Item) -> Iterator[float]:
    """The limits of a test, of which the highest counts."""
    marker = item.get_closest_marker("limit")
    yield LIMIT if marker is None else marker.args[0]
    if marker is None and item.path.is_relative_to(_SPARK):
        yield SPARK_LIMIT
    if item.get_closest_marker("long") is not None:
        yield LONG_LIMIT


class _Watch:
    """Ends this process if a test takes too long; writes why to a file descriptor."""

    def __init__(self, out: int, factor: float, *, notes: bool) -> None:
        """``factor``: how slow the machine is. ``notes``: write down which test is running."""
        self._out = out
        self._factor = factor
        self._notes = notes
        self._timer = threading.Timer(0.0, int)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        limit = max(_limits(item))
        self._note(f"{item.nodeid}\n")
        self._timer = threading.Timer(limit * self._factor, self._end, (item.nodeid,))
        self._timer.daemon = True
        self._timer.start()
        faulthandler.dump_traceback_later(limit * self._factor + _GRACE, exit=True, file=self._out)
        try:
            return (yield)
        finally:
            self.pytest_enter_pdb()
            self._note("")

    def pytest_enter_pdb(self) -> None:
        """Give whoever looks for a fault all the time."""
        self._timer.cancel()
        faulthandler.cancel_dump_traceback_later()

    def _note(self, text: str) -> None:
        if self._notes:
            os.ftruncate(self._out, 0)
            os.write(self._out, text.encode())

    def _end(self, test: str) -> None:
        told = f"{test} hangs: it has not ended after {self._timer.interval:.0f} s.\n"
        os.write(self._out, f"{told}\n".encode())
        faulthandler.dump_traceback(self._out)
        os._exit(1)


class _Notes:
    """Hears of the tests of xdist's processes, and of the stacks of those that hang."""

    def __init__(self, factor: float) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self._factor = factor

    def of(self, node: Any) -> str:
        """Return what a process has noted: the test that it runs, and why it ends."""
        path = Path(self.folder.name, node.gateway.id)
        return path.read_text(errors="replace") if path.exists() else ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["noted"] = str(Path(self.folder.name, node.gateway.id))
        node.workerinput["slowness"] = self._factor

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        report.longrepr += "\n" + self.of(report.node).partition("\n")[2]


_NOTES = pytest.StashKey[_Notes]()
