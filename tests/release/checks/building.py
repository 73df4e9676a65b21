"""Builds the wheel and the source distribution twice: here, and in a clone elsewhere."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path

from tests.release.checks import machine
from tests.release.checks.check import CheckError


class Built:
    """What was built in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def wheel(self) -> Path:
        return self._the("*.whl")

    @property
    def sdist(self) -> Path:
        return self._the("*.tar.gz")

    @property
    def wheel_names(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]

    @property
    def sdist_names(self) -> list[str]:
        with tarfile.open(self.sdist) as archive:
            return [each.name for each in archive.getmembers() if each.isfile()]

    @cached_property
    def metadata(self) -> Message:
        """The metadata of the wheel; its payload is the text that PyPI shows."""
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
            return Parser().parsestr(archive.read(name).decode())

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file, by its name."""
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((self.wheel, self.sdist))
        }

    def _the(self, pattern: str) -> Path:
        found = list(self.folder.glob(pattern))
        if len(found) != 1:
            raise CheckError(f"nothing was built: there is no {pattern} in {self.folder}")
        return found[0]


def build(source: Path, into: Path, **environment: str) -> Built:
    """Build both from ``source``: the wheel from the source distribution, as pip would."""
    shutil.rmtree(into, ignore_errors=True)
    epoch = machine.run("git", "log", "-1", "--format=%ct").strip()
    machine.run(
        machine.UV,
        "build",
        "--out-dir",
        into,
        source,
        environment={"SOURCE_DATE_EPOCH": epoch, **environment},
    )
    return Built(into)


def clone(into: Path) -> Path:
    """Clone the last commit; return the folder."""
    shutil.rmtree(into, ignore_errors=True)
    into.parent.mkdir(parents=True, exist_ok=True)
    machine.run("git", "clone", "--quiet", "--depth", "1", machine.ROOT.as_uri(), into)
    return into


def difference_problems(
    here: Mapping[str, str], there: Mapping[str, str], changed: list[str]
) -> list[str]:
    """Return which files differ between two builds, and what may explain that. Pure."""
    names = sorted({*here, *there})
    found = [
        f"{name} has other bytes than that of a clone"
        for name in names
        if here.get(name) != there.get(name)
    ]
    if found and changed:
        found.append(f"not committed: {', '.join(changed[:5])}{' ...' if len(changed) > 5 else ''}")
    return found
