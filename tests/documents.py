"""The fenced blocks, the links and the toctrees of README.md and docs/."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
"""The first page of the site, whose toctrees lead to every other page."""
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*|\{[\w-]+\})\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")

TOCTREE = "{toctree}"
DIRECTIVES = {TOCTREE, "{eval-rst}"}
"""Fences that Sphinx acts upon. They are no blocks."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{shown(self.page)}:{self.line}"


def shown(page: Path) -> str:
    """The path of a page as tests show it: several folders have an index.md."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    return [block for block in _fences(page) if block.language not in DIRECTIVES]


def _fences(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    assert text.count("```") == 2 * len(_FENCE.findall(text)), f"a fence of {shown(page)} is open"
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2], found[3])
        for found in _FENCE.finditer(text)
    ]


def directives(page: Path) -> list[Block]:
    return [block for block in _fences(page) if block.language in DIRECTIVES]


def listed(page: Path) -> list[Path]:
    """The pages that the toctrees of a page list: each a line, ``page`` or ``title <page>``."""
    lines = [
        line.strip()
        for block in directives(page)
        if block.language == TOCTREE
        for line in block.text.splitlines()
    ]
    return [
        (page.parent / f"{line.rpartition('<')[2].removesuffix('>')}.md").resolve()
        for line in lines
        if line and not line.startswith(":")
    ]


def without_blocks(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    return _LINK.findall(without_blocks(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@dataclass(frozen=True)
class Table:
    """A table: the cells of its head and of each row, and the paragraph below."""

    page: Path
    head: list[str]
    rows: list[list[str]]
    below: str

    def __str__(self) -> str:
        return f"{shown(self.page)}: {' | '.join(self.head)}"


def tables(page: Path) -> list[Table]:
    paragraphs = [*re.split(r"\n{2,}", without_blocks(page)), ""]
    found = []
    for text, below in itertools.pairwise(paragraphs):
        if text.startswith("|"):
            head, _, *rows = [
                [cell.strip() for cell in line.strip()[1:-1].split("|")]
                for line in text.splitlines()
            ]
            found.append(Table(page, head, rows, below))
    return found


def commands(block: Block) -> list[str]:
    """The command lines of a shell block, and of a console block, whose other lines are output."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]
