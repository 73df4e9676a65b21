"""Installs the wheel into a fresh environment, without constraints, and tries it there."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.release.checks import machine
from tests.release.checks.check import CheckError

_VENV = machine.FOLDER / "venv"
_TRY = """\
import importlib, sparkinesis
for page in ("errors", "events", "metrics", "sinks", "status", "testing"):
    module = importlib.import_module(f"sparkinesis.{page}")
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
print(sparkinesis.Application.__module__, sparkinesis.__version__, sparkinesis.__file__)
"""


def python() -> Path:
    return _VENV / "bin" / "python"


def install(wheel: Path) -> str:
    """Install the wheel and what it needs, in the versions of today; return how many packages."""
    machine.run(machine.UV, "venv", "--quiet", "--clear", "--python", sys.executable, _VENV)
    machine.run(machine.UV, "pip", "install", "--quiet", "--python", python(), wheel)
    listed = machine.run(machine.UV, "pip", "list", "--quiet", "--python", python())
    packages = len(listed.splitlines()) - 2
    return f"{packages} packages, without constraints, on Python {sys.version.split()[0]}"


def use(version: str) -> str:
    """Run the command's help, and import the public pages. Raises `CheckError`."""
    answer = machine.run(_VENV / "bin" / "sparkinesis", "--help", cwd=machine.FOLDER)
    if "Usage: sparkinesis" not in answer:
        raise CheckError(f"sparkinesis --help says:\n{answer}")
    where = machine.run(python(), "-I", "-c", _TRY, cwd=machine.FOLDER).split()
    if where[:2] != ["sparkinesis", version] or not where[2].startswith(str(_VENV)):
        raise CheckError(f"the import found {' '.join(where)}")
    return "sparkinesis --help, and imports of all public pages"
