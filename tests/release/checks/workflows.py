"""The workflows of GitHub: their schema, their security, and what they say of this project."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.release.checks import machine

FOLDER = machine.ROOT / ".github" / "workflows"
_MAKE = re.compile(r"^make (.*)$", re.MULTILINE)


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.yml"))


def load(path: Path) -> dict[str, Any]:
    """Read a workflow. YAML takes its key ``on`` for a boolean; here it is a text again."""
    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return {("on" if name is True else name): value for name, value in found.items()}


def steps(workflow: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each step, with the name of its job."""
    for name, job in workflow["jobs"].items():
        for step in job.get("steps", ()):
            yield name, step


def targets(workflow: Mapping[str, Any]) -> set[str]:
    """Return the targets of make that a workflow runs."""
    return {
        target
        for _, step in steps(workflow)
        for found in _MAKE.finditer(step.get("run", ""))
        for target in shlex.split(found[1])
        if not re.search("[=$]", target)
    }


def check() -> str:
    """Check all workflows by GitHub's schema, and by zizmor. Raises `CheckError`."""
    machine.tool(
        "check-jsonschema",
        "check-jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *paths(),
    )
    machine.tool("zizmor", "zizmor", "--offline", "--no-progress", "--persona", "regular", FOLDER)
    return f"{', '.join(path.name for path in paths())}: GitHub's schema, and zizmor"
