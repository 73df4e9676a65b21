"""The versions of what runs here: Python, boto3, and Spark with its Java."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.finding import Finding, ok
from sparkinesis.public import __version__

_JAVA = re.compile(r'version "(?:1\.)?([0-9]+)')


def versions() -> list[Finding]:
    """Return the findings about the installed software."""
    boto = f"boto3 {installed('boto3')}"
    python = f"Python {platform.python_version()}"
    pyspark = installed("pyspark")
    return [
        ok("versions", f"sparkinesis {__version__}, {python}, {boto}"),
        judge.spark(pyspark, java() if pyspark else None),
    ]


def installed(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def java() -> int | None:
    """Return the feature version of Spark's Java; 0 if it does not tell; None without Java."""
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else shutil.which("java")
    if command is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [command, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA.search(said.stderr)
    return int(found[1]) if found else 0
