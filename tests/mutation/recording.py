"""Records which tests run which lines of the package: a plugin of pytest, by coverage's contexts.

``python -m pytest -p tests.mutation.recording FOLDER`` writes to the file that ``LINES_OF_TESTS``
names.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import coverage
import pytest

from tests.mutation.tree import PACKAGE

_OUT = "LINES_OF_TESTS"


class _Recorder:
    def __init__(self, out: Path) -> None:
        self._out = out
        self._coverage = coverage.Coverage(
            data_file=None,
            config_file=False,
            source=[str(PACKAGE)],
            concurrency=["thread"],
        )
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(_function(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = _function(report.nodeid)
        self._seconds[test] += report.duration
        if not report.passed:
            self._failed.add(test)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[int, list[str]]] = {}
        for file in data.measured_files():
            found = {
                line: [test for test in tests if test and test not in self._failed]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            if found := {line: tests for line, tests in found.items() if tests}:
                lines[Path(file).relative_to(PACKAGE).as_posix()] = found
        texts = {file: (PACKAGE / file).read_text() for file in lines}
        self._out.write_text(json.dumps({"lines": lines, "seconds": self._seconds, "texts": texts}))


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Recorder(Path(os.environ[_OUT])))
