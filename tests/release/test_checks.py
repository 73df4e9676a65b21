"""The pure parts of `make release-check`: contents, links, metadata, changelog and lines."""

from __future__ import annotations

import re
from email.message import Message
from typing import Any

import pytest

from sparkinesis.public import __version__
from tests.release import changelog
from tests.release.checks import contents, description, types
from tests.release.checks.building import difference_problems
from tests.release.checks.check import Check, CheckError, require, run_all
from tests.release.checks.machine import ROOT
from tests.release.checks.release import Release

TRACKED = ["src/sparkinesis/a.py", "src/sparkinesis/py.typed", "tests/test_a.py", "README.md"]
SDIST = [f"sparkinesis-1.2.3/{name}" for name in (*TRACKED[:2], *sorted(contents.BESIDE_SOURCES))]
REPOSITORY = "https://github.com/owner/project"


@pytest.mark.parametrize(
    "name",
    [
        "sparkinesis/page.png",
        "sparkinesis/tests/one.py",
        "sparkinesis/test_one.py",
        "sparkinesis/__pycache__/one.py",
        "sparkinesis/one.pyc",
        "sparkinesis/.cache/one.py",
    ],
)
def test_a_source_may_be_a_stranger_in_a_wheel(name: str) -> None:
    good = ["__init__.py", "py.typed", "testing/plugin.py"]  # the latter is for tests of others
    wheel = [*(f"sparkinesis/{one}" for one in good), "sparkinesis-1.2.3.dist-info/METADATA"]
    assert contents.wheel_problems(wheel) == []
    assert contents.wheel_problems([*wheel, name]) == [f"{name} does not belong into a wheel"]


def test_an_sdist_has_the_sources_and_what_builds_the_wheel() -> None:
    assert contents.sdist_problems(SDIST, TRACKED, "1.2.3") == []
    for stranger in ("tests/test_a.py", "docs/page.png", "src/sparkinesis/__pycache__/a.pyc"):
        names = [*SDIST, f"sparkinesis-1.2.3/{stranger}"]
        assert contents.sdist_problems(names, TRACKED, "1.2.3") == [f"{stranger} is too much"]
    assert contents.sdist_problems([*SDIST, "a.py"], TRACKED, "1.2.3") == [
        "a.py is outside of sparkinesis-1.2.3/"
    ]
    missing = [name for name in SDIST if not name.endswith("LICENSE")]
    assert contents.sdist_problems(missing, TRACKED, "1.2.3") == ["LICENSE is missing"]


def test_links_are_those_outside_of_blocks() -> None:
    text = (
        '[a](docs/a.md#b) ![a picture](docs/a.svg) [c](https://c/d "title")\n\n'
        "```python\nx = [d](e)\n```\n\n[ref]: docs/f.md\n"
    )
    assert description.links(text) == [
        (False, "docs/a.md#b"),
        (True, "docs/a.svg"),
        (False, "https://c/d"),
        (False, "docs/f.md"),
    ]


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        (f"[a]({REPOSITORY}/blob/v1.2.3/docs/a.md#b)", None),
        ("[a](https://elsewhere.org/blob/main/a)", None),
        ("[a](#heading)", None),
        ("![a](https://raw.githubusercontent.com/owner/project/v1.2.3/docs/a.svg)", None),
        ("[a](docs/a.md)", "the link docs/a.md is not absolute"),
        ("![a](docs/a.svg)", "the link docs/a.svg is not absolute"),
        (
            f"![a]({REPOSITORY}/blob/v1.2.3/docs/a.svg)",
            f"the picture {REPOSITORY}/blob/v1.2.3/docs/a.svg is a page",
        ),
        (
            f"[a]({REPOSITORY}/blob/main/docs/a.md)",
            f"the link {REPOSITORY}/blob/main/docs/a.md is not to version 1.2.3",
        ),
    ],
)
def test_links_on_pypi(link: str, problem: str | None) -> None:
    found = description.link_problems(link, REPOSITORY, "1.2.3")
    assert found == ([] if problem is None else [problem])


def test_the_files_that_links_lead_to() -> None:
    text = (
        f"[a]({REPOSITORY}/blob/v1.2.3/docs/a.md#b) [b](https://elsewhere.org/c)"
        "![a](https://raw.githubusercontent.com/owner/project/v1.2.3/docs/a.svg)"
    )
    found = description.paths_in_repository(text, REPOSITORY, "1.2.3")
    assert found == ["docs/a.md", "docs/a.svg"]


def test_blocks_are_not_changed() -> None:
    readme = "[a](b)\n\n```python\nf[a](b)\n```\n"
    assert (
        description.block_problems(readme.replace("[a](b)\n\n", "[a](https://b)\n\n"), readme) == []
    )
    assert description.block_problems(readme.replace("f[a](b)", "f[a](https://b)"), readme) != []


def test_metadata_needs_its_fields_and_urls() -> None:
    metadata = Message()
    fields = {"Name": "sparkinesis", "Summary": "s", "License-Expression": "Apache-2.0"}
    for name, value in {**fields, "Requires-Python": ">=3.10", "Keywords": "k"}.items():
        metadata[name] = value
    for label in description.URLS:
        metadata["Project-URL"] = f"{label}, https://x/{label}"
    expected = {"Name": "sparkinesis"}
    assert description.metadata_problems(metadata, expected) == []
    assert description.metadata_problems(metadata, {"Name": "other"}) == [
        "Name is 'sparkinesis', and not 'other'"
    ]
    del metadata["Project-URL"]
    del metadata["Keywords"]
    metadata["Project-URL"] = "Repository, http://x"
    assert description.metadata_problems(metadata, expected) == [
        *(f"it has no URL {name}" for name in description.URLS if name != "Repository"),
        "the URL Repository is not https",
        "it has no Keywords",
    ]


def test_builds_that_differ_name_the_files_and_the_changes() -> None:
    one, other = {"a.whl": "1", "a.tar.gz": "2"}, {"a.whl": "1", "a.tar.gz": "3"}
    assert difference_problems(one, one, ["src/a.py"]) == []
    assert difference_problems(one, other, []) == ["a.tar.gz has other bytes than that of a clone"]
    assert difference_problems(one, other, ["src/a.py"])[1:] == ["not committed: src/a.py"]
    assert len(difference_problems(one, {"b.whl": "1"}, [])) == 3


GOOD = """\
# Changelog

## [Unreleased]

## [1.2.3]

### Added

- A thing.

## [1.2.2] - 2026-11-01

### Fixed

- Another.
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", None),
        ("## [Unreleased]\n\n", "", "its first section is not [Unreleased]"),
        ("[1.2.3]", "[1.2.4]", "it has no section [1.2.3], the version of the package"),
        (" - 2026-11-01", "", "its section [1.2.2] has no date"),
        (" - 2026-11-01", " (November)", "'## [1.2.2] (November)' is no heading of a version"),
        ("### Fixed", "### Repaired", "[1.2.2] has the heading 'Repaired'"),
        ("### Added\n\n- A thing.\n", "", "its section [1.2.3] is empty"),
        ("[1.2.3]", "[1.2.3] - 2026-10-01", "its sections are not sorted by date"),
    ],
)
def test_mistakes_in_a_changelog(old: str, new: str, problem: str | None) -> None:
    found = changelog.problems(GOOD.replace(old, new, 1) if old else GOOD, "1.2.3")
    assert (problem is None and found == []) or problem in found


def test_a_tag_needs_a_date() -> None:
    found = changelog.problems(GOOD, "1.2.3", must_be_released=True)
    assert found == ["its section [1.2.3] has no date"]
    assert changelog.released(GOOD) == {"1.2"}
    assert changelog.sections(GOOD)["1.2.3"] == "### Added\n\n- A thing."


def test_the_changelog_is_one_of_this_version() -> None:
    text = changelog.CHANGELOG.read_text("utf-8")
    assert changelog.problems(text, __version__) == []


def test_nothing_else_states_the_version() -> None:
    """The one place is src/sparkinesis/public.py, which Hatch reads."""
    places = [ROOT / "pyproject.toml", ROOT / "Makefile"]
    for folder in ("src", "deploy", "examples", ".github"):
        places += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    text = re.compile(rf"(?<![\d.]){re.escape(__version__)}(?![\d.])")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in places
        if path.suffix not in {".pyc", ".png"} and text.search(path.read_text("utf-8"))
    ]
    assert found == ["src/sparkinesis/public.py"]


def test_outcomes_are_aligned_and_one_failure_is_enough() -> None:
    def fail() -> str:
        require(["one", "two"])
        return "never"

    lines: list[str] = []
    checks = [Check("a", lambda: "good"), Check("longer", fail), Check("b", lambda: "good, too")]
    assert not run_all(checks, lines.append)
    assert lines == [
        "a       ok      good",
        "longer  failed  one\n                two",
        "b       ok      good, too",
    ]
    assert run_all(checks[:1], lines.append)


def test_a_tag_of_another_version_fails() -> None:
    def version(tag: str | None) -> str:
        return Release(tag).checks[0].run()

    assert version(None) == __version__
    assert version(f"v{__version__}") == f"{__version__}, tagged v{__version__}"
    with pytest.raises(CheckError, match=r"the tag is v99\.0\.0"):
        version("v99.0.0")


def test_public_names_are_found_where_they_are_defined() -> None:
    names = types.public_names()
    assert {
        "sparkinesis.application.Application",
        "sparkinesis.errors.DataLossError",
        "sparkinesis.lease.extended_sequence_number.ExtendedSequenceNumber",
        "sparkinesis.stream.kpl.pack.aggregate",
        "sparkinesis.worker.sink.sink.ParquetSink",
        "sparkinesis.testing.sandbox.Sandbox",
        "sparkinesis.local.wire.server.LocalServer",
    } <= names
    assert types.is_public("sparkinesis.application.Application.run", names)
    assert not types.is_public("sparkinesis.application.Applications", names)
    assert not types.is_public("sparkinesis.lease.held.HeldLease", names)


def test_only_what_is_not_declared_is_a_problem() -> None:
    def symbol(message: str) -> dict[str, Any]:
        return {"name": "sparkinesis.a.A.b", "diagnostics": [{"message": message}]}

    undeclared = "Type is missing type annotation and could be inferred differently\n  Inferred"
    assert types.problems([symbol(undeclared)]) == [
        "sparkinesis.a.A.b: Type is missing type annotation and could be inferred differently"
    ]
    assert types.problems([symbol("Return type is partially unknown")]) == []
