"""The fenced blocks and the links of README.md and docs/."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    assert text.count("```") == 2 * len(_FENCE.findall(text)), f"a fence of {page.name} is open"
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2], found[3])
        for found in _FENCE.finditer(text)
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
        return f"{self.page.name}: {' | '.join(self.head)}"


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
