"""The Java KCL: from Maven Central, with a worker of ours, compiled once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop.servers import CACHE, MissingToolError, copy_libraries, require

KCL = "3.5.1"
"""The version of the KCL that is played with, unless another is named."""
_SOURCE = Path(__file__).parent / "java"
_OLDEST = 17
_NEEDED = "the Java KCL needs a JDK of Java 17 or newer and Maven: install both"


def require_java() -> None:
    """Raise `MissingToolError` unless the worker can be compiled and run here."""
    require(_NEEDED, "java", "javac", "mvn")
    asked = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    version = (asked.stdout + asked.stderr).strip()
    if not is_new_enough(version):
        raise MissingToolError(f"{version or 'javac'} is too old, and {_NEEDED}.")


def is_new_enough(version: str) -> bool:
    """Read what ``javac -version`` prints, such as "javac 17.0.15"; Java 8 calls itself 1.8."""
    found = re.search(r"javac (\d+)", version)
    return found is not None and int(found[1]) >= _OLDEST


def build(version: str = KCL) -> None:
    """Compile the worker and copy its libraries, unless that was done for these sources."""
    of = "" if version == KCL else f"-Dkcl.version={version}"
    copy_libraries(_built(version), _SOURCE, "compile", of=of)


def command(*arguments: str, main: str = "JavaWorker", version: str = KCL) -> Sequence[str]:
    """Return the command that runs one Java worker, or another class."""
    quick = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    logs = ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
    return ["java", *quick, *logs, "-cp", classpath(version), f"interop.{main}", *arguments]


def classpath(version: str = KCL) -> str:
    """Return the path of what `build` has compiled, and of its libraries."""
    built = _built(version)
    return f"{built / 'classes'}:{built / 'libraries'}/*"


def _built(version: str) -> Path:
    return CACHE / f"java-kcl-{version}"
