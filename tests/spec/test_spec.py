"""The specification of the lease protocol names what is in the code, and TLC's report is read."""

from __future__ import annotations

import importlib
import re
from functools import reduce

import pytest

from tests.spec.models import LONG, MODELS, faults
from tests.spec.tlc import ROOT, SPECS, Found, TlcError, read

TEXTS = {path.stem: path.read_text() for path in SPECS.glob("*.tla")}
TEXT = "\n".join(TEXTS.values())
DEFINED = set(re.findall(r"^(\w+) ==", TEXT, re.MULTILINE))
RULES = [path.read_text() for path in (ROOT / "tests" / "simulation").glob("*.py")]
DOCUMENT = (ROOT / "docs" / "simulation.md").read_text()
NAMED = sorted(set(re.findall(r"(?<![\w.])lease\.\w+(?:\.\w+)+", TEXT)))
"""What the comments name: modules below `sparkinesis`, and what is in them."""

VIOLATED = """Error: Invariant OneHolder is violated.
State 1: <Initial predicate>
State 2: <Start line 82, col 5 to line 84, col 100 of module Leases>
4,549 states generated, 1,774 distinct states found, 830 states left on queue.
Finished in 02min 05s at (2026-11-26 23:18:30)
"""


def test_the_comments_name_code() -> None:
    assert len(NAMED) > 8, NAMED


@pytest.mark.parametrize("name", NAMED)
def test_what_a_comment_names_is_in_the_code(name: str) -> None:
    parts = f"sparkinesis.{name}".split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        reduce(getattr, parts[length:], module)
        return
    raise AssertionError(f"{name} is nowhere")


def test_what_a_model_checks_is_in_the_specification() -> None:
    models = (*MODELS, *LONG, *faults())
    for model in models:
        named = re.findall(r"^[A-Z]+ (.+)$", model.config, re.MULTILINE)
        assert set(" ".join(named).split()) <= DEFINED
        given = re.findall(r"^    (\w+) =", model.config, re.MULTILINE)
        assert given == _constants(model.module)
    planted = re.findall(r'Fault (?:=|#) "([^"]+)"', TEXT)
    assert {*planted, "none"} == {model.fault for model in models}


def _constants(module: str) -> list[str]:
    """Return the constants of a module, and before them those of the module that it extends."""
    text = TEXTS[module].partition("CONSTANTS")[2].partition("\n\n")[0]
    own = re.findall(r"^    (\w+),? +\\\*", text, re.MULTILINE)
    extended = re.search(r"^EXTENDS (\w+)$", TEXTS[module], re.MULTILINE)
    return (_constants(extended[1]) if extended else []) + own


def test_rules_of_the_simulation_name_what_is_in_the_specification() -> None:
    claim = re.compile(r"specification(?:\]\([^)]*\))?'s `(\w+)`")
    in_rules = {name for text in RULES for name in claim.findall(text)}
    in_document = set(claim.findall(DOCUMENT))
    assert in_rules == in_document
    assert {"OneHolder", "OneWriter", "ChildrenAfterParent", "OwnedAgain"} <= in_rules <= DEFINED


def test_a_report_is_read() -> None:
    assert read(VIOLATED) == Found("OneHolder", 1774, 2, 125.0)
    fine = VIOLATED.replace("Invariant OneHolder is violated.", "No error has been found.")
    assert read(fine) == Found(None, 1774, 0, 125.0)
    other = VIOLATED.replace("Invariant OneHolder", "Action property line 31 of module EachLease")
    assert read(other).violated == "EachLease"
    with pytest.raises(TlcError, match="no verdict"):
        read("Error: Parsing or semantic analysis failed.\nFinished in 00s at (2026)")
