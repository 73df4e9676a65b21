"""A program that raises ends its command in its own words, without the command's frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import run

PROPERTIES = "applicationName = flights\nstreamName = flights\nexecutableName = flights.py\n"
COMMANDS = (("kclpy", "flights.properties"), ("run", "flights"))
DAEMONS = """\
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

app = kcl.KCLProcess(processor.RecordProcessorBase())
app.run()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights.properties").write_text(PROPERTIES)
    return tmp_path / "flights.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_imports_of_amazon_kclpy_are_to_be_changed(program: Path, command: list[str]) -> None:
    program.write_text(DAEMONS)
    result = run(*command)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"sparkinesis {command[0]}: {program}, line 1, imports amazon_kclpy, which needs its Java "
        "daemon. Change the imports to those of sparkinesis.compat.kclpy, here: from "
        "sparkinesis.compat.kclpy import kcl; and start the program by sparkinesis kclpy "
        "FILE.properties (docs/kclpy.md).\n"
    )


def test_an_installed_amazon_kclpy_does_not_wait_for_its_daemon(program: Path) -> None:
    program.write_text(DAEMONS)
    package = program.with_name("amazon_kclpy")
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    result = run("kclpy", "flights.properties")
    assert result.returncode == 1
    assert "Change the imports" in result.stderr


def test_another_librarys_name_leads_to_its_page(program: Path) -> None:
    program.write_text("\nfrom kcl_rs import Scheduler\n")
    told = run("run", "flights").stderr
    assert told.startswith("sparkinesis run: ")
    assert f'\n  File "{program}", line 2, in <module>\n' in told
    assert "No module named 'kcl_rs'" in told
    assert told.endswith("What takes the place of kcl_rs: docs/coming-from/kcl-rs.md.\n")
    assert "typer" not in told
    assert told.count("File ") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_any_other_error_has_the_programs_frames_alone(program: Path, command: list[str]) -> None:
    program.write_text("def read():\n    import no_such_module\n\n\nread()\n")
    result = run(*command)
    told = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (1, "")
    assert told[0].startswith(f"sparkinesis {command[0]}: ")
    assert [line for line in told if "File " in line] == [
        f'  File "{program}", line 5, in <module>',
        f'  File "{program}", line 2, in read',
    ]
    assert told[-1] == "ModuleNotFoundError: No module named 'no_such_module'"
