"""The reference has each public name once."""

from __future__ import annotations

import re
from collections import Counter

import sparkinesis.local
import sparkinesis.testing
from tests.documents import DOCS, directives
from tests.unit.test_public_names import ALIASES, PAGES

REFERENCE = sorted((DOCS / "reference").glob("*.md"))

WHOLE = {"sparkinesis.errors", "sparkinesis.events", "sparkinesis.status"}
"""Modules that a page shows with all of their names."""

NAMES = {
    *(f"{module.__name__}.{name}" for module, names in PAGES.items() for name in names),
    *(f"sparkinesis.{name}" for name in ALIASES),
    *(f"sparkinesis.testing.{name}" for name in sparkinesis.testing.__all__),
    *(f"sparkinesis.local.{name}" for name in sparkinesis.local.__all__),
} - {"sparkinesis.local.LocalServerError"}


def documented() -> list[str]:
    text = "".join(block.text for page in REFERENCE for block in directives(page))
    return re.findall(r"^\.\. auto(?!module)\w+:: ([\w.]+)$", text, re.MULTILINE)


def test_each_public_name_is_on_one_page_of_the_reference() -> None:
    names = Counter(documented())
    assert {name for name, times in names.items() if times > 1} == set()
    assert set(names) == {name for name in NAMES if name.rpartition(".")[0] not in WHOLE}


def test_modules_of_many_names_are_there_as_a_whole() -> None:
    text = "".join(block.text for page in REFERENCE for block in directives(page))
    blocks = re.findall(r"^\.\. automodule:: ([\w.]+)\n((?:   .*\n)*)", text, re.MULTILINE)
    assert {name for name, options in blocks if ":no-members:" not in options} == WHOLE
