"""The command, on a module of the package."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.mutation.tree import PACKAGE, ROOT

FILE = "lease/rules/audit.py"


def test_faults_are_planted_in_a_copy_and_told_with_the_tests_that_notice_them() -> None:
    text = (PACKAGE / FILE).read_text()
    line = text[: text.index("return find_hole(")].count("\n") + 1
    options = ["--own", "--line", str(line), "--draw", "2", "--seed", "1", "--json"]
    result = subprocess.run(
        [sys.executable, "-m", "tests.mutation", PACKAGE / FILE, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(found) == 2
    for one in found:
        assert (one["file"], one["line"], one["where"]) == (FILE, line, "audit_needs_them")
        assert one["result"].startswith("tests/unit/lease/rules/test_audit.py::test_an_audit_")
    assert "The seed is 1." in result.stderr
    assert (PACKAGE / FILE).read_text() == text
