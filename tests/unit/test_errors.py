"""docs/errors.md: a section for each class, with what it means, why it comes, and what to do."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache

import pytest

from sparkinesis import errors
from tests.documents import ROOT, blocks

PAGE = ROOT / "docs" / "errors.md"
TEXT = PAGE.read_text("utf-8")
PARTS = ("What it means.", "Why it comes.", "What to do.")
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
HOLE = "\0"
"""Stands for what a message fills in."""


def classes() -> dict[str, type]:
    """Return the errors that `sparkinesis.errors` defines, by name."""
    members = inspect.getmembers(errors, inspect.isclass)
    ours = {name: each for name, each in members if each.__module__ == errors.__name__}
    assert all(issubclass(each, errors.SparkinesisError) for each in ours.values())
    return ours


def sections() -> dict[str, str]:
    """Return the text of each section whose heading is one word, in the page's order."""
    found = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)[1:]
    return {
        heading: text
        for heading, text in zip(found[::2], found[1::2], strict=True)
        if " " not in heading
    }


def part(text: str, name: str) -> str:
    """Return what a section says behind one of its three names."""
    behind = text.partition(f"**{name}**")[2]
    return re.split(r"\*\*(?:" + "|".join(map(re.escape, PARTS)) + r")\*\*", behind)[0].strip()


def test_each_class_has_its_section_and_no_section_is_of_another() -> None:
    assert list(sections()) == sorted(classes())


@pytest.mark.parametrize("name", sorted(classes()))
def test_a_section_has_its_three_parts_in_order(name: str) -> None:
    text = sections()[name]
    assert re.findall(r"^\*\*([^*]+\.)\*\*(?: |$)", text, re.MULTILINE) == list(PARTS)
    for each in PARTS:
        assert len(part(text, each).split()) > 5, f"{name}: {each}"


@pytest.mark.parametrize("name", sorted(classes()))
def test_what_to_do_is_a_command_an_option_or_a_page(name: str) -> None:
    """Words alone help nobody at night."""
    assert re.search(r"`|\]\(", part(sections()[name], "What to do."))


def test_the_tree_of_the_page_is_that_of_the_classes() -> None:
    (shown,) = [each.text for each in blocks(PAGE) if each.text.startswith("SparkinesisError")]
    module = inspect.cleandoc(errors.__doc__ or "")
    assert "\n".join(f"    {line}" for line in shown.splitlines()) in module
    above: list[str] = []
    for line in shown.splitlines():
        found = re.fullmatch(r"([│├└─ ]*)(\w+)(?: +\((\w+)\))?", line)
        assert found, line
        depth = len(found[1]) // 4
        above[depth:] = [found[2]]
        bases = {base.__name__ for base in classes()[found[2]].__bases__}
        assert bases == {above[depth - 1] if depth else "Exception", found[3] or ""} - {""}
    assert len(shown.splitlines()) == len(classes())


def test_the_module_tells_the_address_of_the_page() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (site,) = re.findall(r'^Documentation = "(.+)"$', project, re.MULTILINE)
    assert f"{site}errors.html" in (errors.__doc__ or "")


@cache
def told() -> tuple[str, ...]:
    """Return the texts of the sources, with a hole for each value that a text is filled with."""
    texts: list[str] = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    str(one.value) if isinstance(one, ast.Constant) else HOLE for one in node.values
                )
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(re.sub(r"\{\w*(?::[^{}]*)?\}", HOLE, node.value))
    return tuple(texts)


def quotes(text: str) -> list[str]:
    """Return what a page quotes of messages, outside of code."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", HOLE, text)
    return [" ".join(found.split()) for found in re.findall(r'"([^"]+)"', text)]


QUOTES = [
    pytest.param(quote, id=f"{page.name}: {quote}")
    for page in [PAGE, *RUNBOOKS]
    for quote in quotes(page.read_text("utf-8"))
]


@pytest.mark.parametrize("quote", QUOTES)
def test_the_words_that_a_page_quotes_are_those_of_a_message(quote: str) -> None:
    """Who has only the message searches the page for its words."""
    words = [re.escape(piece.strip()) for piece in re.split(rf"\.\.\.|{HOLE}", quote)]
    wanted = re.compile(".*".join(words), re.DOTALL)
    assert any(wanted.search(text) for text in told()), f"no message says {quote!r}"
