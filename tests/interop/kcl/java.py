"""The Java KCL: from Maven Central, with a worker of ours, compiled once."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop.servers import CACHE, MissingToolError, is_stale, require, run

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
    built = _built(version)
    CACHE.mkdir(parents=True, exist_ok=True)
    sources = [_SOURCE / "pom.xml", *_SOURCE.rglob("*.java")]
    stamp = built / "stamp"
    if not any(is_stale(stamp, source) for source in sources):
        return
    print(f"Building the Java worker, with the KCL {version} of Maven Central ...", flush=True)
    shutil.rmtree(built, ignore_errors=True)
    where = [f"-Doutput={built}", f"-DoutputDirectory={built / 'libraries'}"]
    if version != KCL:
        where.append(f"-Dkcl.version={version}")
    pom = str(_SOURCE / "pom.xml")
    run("mvn", "-q", "-B", "-f", pom, "compile", "dependency:copy-dependencies", *where)
    stamp.touch()


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
