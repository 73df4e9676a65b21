"""The program's main module, as worker processes would import it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from sparkinesis.errors import ProcessorError
from sparkinesis.worker.supervision.process_launcher import check_main_module


def test_what_an_interactive_session_has_defined_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    check_main_module(b"package.module handle", "in a module")
    with pytest.raises(ProcessorError, match=r"interactive session.*Define it in a module\."):
        check_main_module(b"__main__ handle", "in a module")
