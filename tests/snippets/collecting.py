"""What becomes of each program and command of README.md and docs/.

`running` runs a block, unless a comment in the page says otherwise:

- ``<!-- not run: REASON -->`` in the line above a block, or ``<!-- no block of this page is run:
  REASON -->``: Python is compiled, and nothing else is done.
- ``<!-- run by tests/FILE.py -->`` above a block, or ``<!-- the blocks of this page are run by
  tests/FILE.py -->`` (``the python blocks``, for one language): another test runs the blocks.

A mark above a block has precedence over that of the page, and one of a language over that of the
whole page. ``<!-- printed -->`` above a ``text`` block says that the block before prints these
lines: see `running`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.documents import DOCS, README, Block, blocks, commands, without_blocks

LANGUAGES = ("python", "shell", "console", "sql")

LEFT_OUT = {
    "aws": "needs an AWS account and its command line",
    "docker": "needs Docker",
    "make": "a target of the repository",
    "pip": "installs what the tests have",
    "protoc": "needs the compiler of Protocol Buffers",
    "spark-submit": "needs a cluster, or packages that it fetches",
}
"""Programs whose commands are left out, and why."""
LOCAL = "sparkinesis local"
"""The command in whose place the tests have a local Kinesis, with the streams that it names."""

_OF_README = {
    "python": "<!-- run by tests/spark/test_readme.py -->",
    "shell": "<!-- not run: docs/start and docs/guides have these commands, and are run -->",
}
"""The marks of the README, which PyPI shows."""

_MARK = re.compile(r"<!-- (not run|run by|printed)(?:: | |)(.*?) ?-->$")
_OF_PAGE = re.compile(r"<!-- no block of this page is run: (.+?) -->", re.DOTALL)
_ELSEWHERE = re.compile(r"<!-- the (?:(\w+) )?blocks of this page are run by (.+?) -->", re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")


class How(Enum):
    """What is done with a block."""

    RUN = "run here"
    ELSEWHERE = "run by another test"
    COMPILED = "only compiled, with a reason"
    LEFT_OUT = "commands that are left out by their program"


@dataclass(frozen=True)
class Snippet:
    """A block, and what becomes of it.

    why: the reason, or the file of the test that runs it.
    file: the name of the program, whose first line is ``# name.py``; None: it has none.
    printed: the lines that it prints, if the page shows them.
    """

    block: Block
    how: How
    why: str
    file: str | None = None
    printed: str | None = None

    def __str__(self) -> str:
        return str(self.block)


def pages() -> list[Path]:
    return [README, *sorted(DOCS.rglob("*.md"))]


def snippets(page: Path) -> list[Snippet]:
    """Return the programs and commands of a page, in their order."""
    lines = page.read_text("utf-8").splitlines()
    text = without_blocks(page)
    found: list[Snippet] = []
    for block in blocks(page):
        above = lines[block.line - 2].strip() if block.line > 1 else ""
        mark = _MARK.match(above)
        if block.language in LANGUAGES:
            file = _FILE.match(block.text) if block.language == "python" else None
            how, why = _fate(block, mark, text)
            found.append(Snippet(block, how, why, file and file[1]))
        elif mark and mark[1] == "printed":
            last = found.pop()
            found.append(Snippet(last.block, last.how, last.why, last.file, block.text))
    return found


def _fate(block: Block, mark: re.Match[str] | None, text: str) -> tuple[How, str]:
    if mark is None and block.page == README:
        mark = _MARK.match(_OF_README.get(block.language, ""))
    if mark is not None:
        return (How.ELSEWHERE if mark[1] == "run by" else How.COMPILED), mark[2]
    by_language = {found[1]: found[2] for found in _ELSEWHERE.finditer(text)}
    for language in (block.language, None):
        if language in by_language:
            return How.ELSEWHERE, by_language[language]
    if found := _OF_PAGE.search(text):
        return How.COMPILED, " ".join(found[1].split())
    if block.language == "shell":
        reasons = [why_left_out(line) for line in commands(block)]
        if None not in reasons:
            return How.LEFT_OUT, "; ".join(dict.fromkeys(filter(None, reasons)))
    return How.RUN, ""


def why_left_out(command: str) -> str | None:
    """Return why a command is not run; None if it is run."""
    if command.startswith(LOCAL):
        return "the tests have a local Kinesis of their own"
    words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
    return LEFT_OUT.get(words[0])
