"""CHANGELOG.md, in the form of Keep a Changelog: the versions, and which of them are released."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "Unreleased"
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
"""The headings of changes, in the order of Keep a Changelog."""

_SECTION = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$", re.MULTILINE
)


def sections(text: str) -> dict[str, str]:
    """Return the text of each version, the newest first, without its heading."""
    found = list(_SECTION.finditer(text))
    ends = [one.start() for one in found[1:]] + [len(text)]
    return {
        one["version"]: text[one.end() : end].strip() for one, end in zip(found, ends, strict=True)
    }


def dates(text: str) -> dict[str, str | None]:
    """Return the date of each version; None: it is not released."""
    return {one["version"]: one["date"] for one in _SECTION.finditer(text)}


def released(text: str) -> set[str]:
    """Return the released versions, by their first two numbers."""
    return {".".join(name.split(".")[:2]) for name, date in dates(text).items() if date}


def problems(text: str, version: str, *, must_be_released: bool = False) -> list[str]:
    """Return what is wrong with the changelog of a package of this version."""
    found = []
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    found += [
        f"{line!r} is no heading of a version" for line in headings if not _SECTION.match(line)
    ]
    days = dates(text)
    if next(iter(days), None) != UNRELEASED:
        found.append(f"its first section is not [{UNRELEASED}]")
    if version not in days:
        found.append(f"it has no section [{version}], the version of the package")
    elif must_be_released and days[version] is None:
        found.append(f"its section [{version}] has no date")
    undated = [name for name, day in days.items() if not day and name not in {UNRELEASED, version}]
    found += [f"its section [{name}] has no date" for name in undated]
    known = [day for day in days.values() if day]
    if known != sorted(known, reverse=True):
        found.append("its sections are not sorted by date")
    for name, section in sections(text).items():
        kinds = re.findall(r"^### (.*)$", section, re.MULTILINE)
        found += [f"[{name}] has the heading {kind!r}" for kind in kinds if kind not in KINDS]
        if name != UNRELEASED and not kinds:
            found.append(f"its section [{name}] is empty")
    return found
