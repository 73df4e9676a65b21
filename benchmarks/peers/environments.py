"""The competitors' environments, in build/peers: each has one of its own, made once."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.competitors import PATH_OF_OURS, Competitor

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "peers"
NAMES = ("boto3", "botocore", "aiobotocore", "protobuf", "pyarrow", "numpy")
"""Dependencies whose versions matter to a reader."""


class LeftOutError(Exception):
    """A competitor cannot be measured here; the message is a sentence that says why."""


def installed(competitor: Competitor) -> Path:
    """Return the competitor's Python, after installing the competitor if that was not done.

    Raises `LeftOutError`.
    """
    home = _home(competitor)
    source = checked_out(competitor)
    python = home / "venv" / "bin" / "python"
    wanted = _key(competitor, source)
    marker = home / "installed"
    if marker.exists() and marker.read_text() == wanted:
        return python
    home.mkdir(parents=True, exist_ok=True)
    _run(competitor, [sys.executable, "-m", "venv", "--clear", str(home / "venv")])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if PATH_OF_OURS in competitor.requirements:
        _run(competitor, [*pip, "-c", str(source / "constraints.txt"), "-e", str(source)])
    elif any("==" in each for each in competitor.requirements):
        _run(competitor, [*pip, "--only-binary", ":all:", *competitor.requirements])
    else:
        _run(competitor, [*pip, "-c", str(ROOT / "constraints.txt"), *competitor.requirements])
    marker.write_text(wanted)
    return python


def _home(competitor: Competitor) -> Path:
    return FOLDER / re.sub(r"[^\w.-]+", "-", competitor.name)


def checked_out(competitor: Competitor) -> Path:
    """Return the folder with the competitor's source; a revision's is checked out there.

    Raises `LeftOutError`.
    """
    if competitor.revision is None:
        return competitor.folder or ROOT
    home = _home(competitor)
    source = home / "source"
    source.mkdir(parents=True, exist_ok=True)
    revision = competitor.revision
    sha = _run(competitor, ["git", "-C", str(ROOT), "rev-parse", f"{revision}^{{commit}}"]).strip()
    marker = home / "revision"
    if marker.exists() and marker.read_text() == sha:
        return source
    archive = home / "source.tar"
    _run(competitor, ["git", "-C", str(ROOT), "archive", "--output", str(archive), sha])
    _run(competitor, ["tar", "-xf", str(archive), "-C", str(source)])
    archive.unlink()
    marker.write_text(sha)
    return source


def _key(competitor: Competitor, source: Path) -> str:
    """The text that changes when the environment must be made again."""
    text = " ".join([sys.version, *competitor.requirements])
    for name in ("pyproject.toml", "constraints.txt"):
        if PATH_OF_OURS in competitor.requirements:
            text += " " + hashlib.sha256((source / name).read_bytes()).hexdigest()
    return text


def _run(competitor: Competitor, command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no reason").splitlines()[-1]
        raise LeftOutError(f"{competitor.name} is left out, as it cannot be installed: {last}")
    return done.stdout


def project(requirement: str) -> str:
    """The name of a requirement's project, without extras and version."""
    return re.split(r"[\[=<>]", requirement, maxsplit=1)[0]


def versions(competitor: Competitor, python: Path) -> dict[str, str]:
    """The versions of the competitor and of the libraries beneath it that matter."""
    pip = [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    found = {each["name"]: each["version"] for each in json.loads(_run(competitor, pip))}
    its_own = [project(each) for each in competitor.requirements]
    names = dict.fromkeys([*its_own, "sparkinesis", *NAMES])
    return {name: found[name] for name in names if name in found}
