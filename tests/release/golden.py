"""Golden files: what each version has written of the formats, and what it has read in that.

A golden file belongs to the version that brought its form, and holds for all later ones until
another form comes. It never changes once that version is released.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkinesis.public import __version__
from tests.release.changelog import CHANGELOG, released
from tests.release.formats import FORMATS, Format

FOLDER = Path(__file__).parent / "golden"

ADVICE = """\
The code writes another form of {name} than tests/release/golden/{version} holds. If that is a
mistake, mend the code: those who run a released version have the old form in their checkpoints,
tables and files, and older workers read the new one beside newer workers. If it is meant:
1. Let the code still read the old form.
2. Run: python -m tests.release --write {this}
3. Tell of it in CHANGELOG.md, and whether older versions read the new form."""


class GoldenError(Exception):
    """Golden files cannot be written; the message says why."""


def this_version() -> str:
    """Return the version to which forms of today's code belong: two numbers, such as 0.1."""
    return ".".join(__version__.split(".")[:2])


def versions() -> list[str]:
    """Return the versions that have golden files, the oldest first."""
    return sorted((path.name for path in FOLDER.iterdir() if path.is_dir()), key=numbers)


def path_of(version: str, form: Format) -> Path:
    return FOLDER / version / f"{form.name}.json"


def files() -> Iterator[tuple[str, Format]]:
    """Yield each golden file: its version, and its format."""
    for version in versions():
        for form in FORMATS:
            if path_of(version, form).exists():
                yield version, form


def newest(form: Format) -> str | None:
    """Return the last version that has a golden file of a format."""
    return next((version for version, one in reversed(list(files())) if one is form), None)


def text_of(form: Format) -> str:
    """Return the golden file of what today's code writes."""
    entries = {
        name: {"written": written, "read": form.read(written)}
        for name, written in form.write().items()
    }
    lines = (
        '{}: {{\n "written": {},\n "read": {}\n}}'.format(
            *map(_json, (name, one["written"], one["read"]))
        )
        for name, one in sorted(entries.items())
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def stored_text(version: str, form: Format) -> str:
    """Return a golden file as it is."""
    return path_of(version, form).read_text("utf-8")


def entries_of(version: str, form: Format) -> dict[str, dict[str, Any]]:
    """Return the entries of a golden file: what was written, and what was read in it."""
    found: dict[str, dict[str, Any]] = json.loads(stored_text(version, form))
    return found


def write(version: str) -> list[Path]:
    """Write the golden files of the forms that differ from those of earlier versions.

    Raises `GoldenError` for another version than that of the package, and for a released one.
    """
    if version != this_version():
        raise GoldenError(
            f"The package has version {__version__}, so its forms belong to {this_version()}, and "
            f"not to {version}. Change the version in src/sparkinesis/public.py first."
        )
    if version in released(CHANGELOG.read_text("utf-8")):
        raise GoldenError(
            f"Version {version} is released: its golden files are what its users have stored. A "
            "new form comes with a new minor version, in src/sparkinesis/public.py."
        )
    written = []
    for form in FORMATS:
        earlier = [one for one, other in files() if other is form and one != version]
        text = text_of(form)
        path = path_of(version, form)
        if earlier and stored_text(earlier[-1], form) == text:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        written.append(path)
    return written


def still_says(now: Any, then: Any) -> bool:
    """Return True if a meaning of today has all that an earlier version read; it may have more."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(
            name in now and still_says(now[name], value) for name, value in then.items()
        )
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(still_says, now, then))
    return bool(now == then)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def numbers(version: str) -> list[int]:
    """Return a key that sorts versions."""
    return [int(number) for number in re.findall(r"\d+", version)]
