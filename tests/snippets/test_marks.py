"""Every program and command of README.md and docs/ is run, or its page says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import README, ROOT, shown, without_blocks
from tests.snippets.collecting import How, pages, snippets
from tests.snippets.running import pattern

ALL = [each for page in pages() for each in snippets(page)]
NOT_RUN = [each for each in ALL if each.how is not How.RUN]
MARKS = re.compile(r"<!--(?:(?!-->).)*\b(?:run|printed)\b(?:(?!-->).)*-->", re.DOTALL)
STARTS_SESSION = re.compile(r"SparkSession\b.*\.getOrCreate\(\)", re.DOTALL)
STARTS_QUERY = re.compile(r"\.(start|toTable)\(")
WAITS = re.compile(r"\.(awaitTermination|awaitAnyTermination|processAllAvailable)\(")
JAVA = "export JAVA_HOME=$(python -m sparkinesis.local.java)"
FIRST = ("README.md", "docs/start/", "docs/guides/", "docs/coming-from/")
WITH_SPARK = [
    page
    for page in pages()
    if shown(page).startswith(FIRST)
    and any(STARTS_SESSION.search(each.block.text) for each in snippets(page))
]
KNOWN = re.compile(
    r"<!-- (printed|not run: \S.+|run by tests/\S+\.py|no block of this page is run: \S.+"
    r"|the (\w+ )?blocks of this page are run by tests/\S+\.py) -->",
    re.DOTALL,
)


def test_each_mark_is_known() -> None:
    """A mark that is misspelled would count for nothing."""
    found = [mark for page in pages() for mark in MARKS.findall(without_blocks(page))]
    assert [mark for mark in found if not KNOWN.fullmatch(mark)] == []


def test_the_test_that_runs_a_block_reads_its_page() -> None:
    def reads(file: str, page: Path) -> bool:
        text = (ROOT / file).read_text("utf-8")
        return ("README" if page == README else page.name) in text

    elsewhere = [each for each in ALL if each.how is How.ELSEWHERE]
    assert [str(each) for each in elsewhere if not reads(each.why, each.block.page)] == []


def test_what_is_not_run_says_why() -> None:
    assert [str(each) for each in NOT_RUN if not each.why] == []
    assert [str(each) for each in NOT_RUN if each.printed is not None] == []
    paths = set(re.findall(r"\b(?:tests|docs)/[\w/.-]*\w", " ".join(x.why for x in NOT_RUN)))
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_every_program_is_compiled() -> None:
    for each in ALL:
        if each.block.language == "python":
            compile(each.block.text, str(each), "exec")


def test_a_program_that_starts_a_query_waits_for_it() -> None:
    """As a file it would end at once, with exit code 0 and nothing done."""
    assert [
        str(each)
        for each in ALL
        if STARTS_SESSION.search(each.block.text)
        and STARTS_QUERY.search(each.block.text)
        and not WAITS.search(each.block.text)
    ] == []


@pytest.mark.parametrize("page", WITH_SPARK, ids=shown)
def test_a_program_with_spark_says_where_its_java_comes_from(page: Path) -> None:
    """Without Java it would end in JAVA_GATEWAY_EXITED."""
    setup = page.with_name("index.md")
    if page.parent.name == "guides":
        setup = page.parents[1] / "start" / "index.md"
        assert "../start/index.md" in page.with_name("index.md").read_text("utf-8")
    assert any(JAVA in one.read_text("utf-8") for one in (page, setup))


def test_the_first_pages_are_run_as_a_whole() -> None:
    assert {
        str(each)
        for each in ALL
        if shown(each.block.page).startswith(("docs/start/", "docs/guides/"))
        and each.how not in {How.RUN, How.LEFT_OUT}
    } == set()


@pytest.mark.parametrize(
    ("printed", "is_it"),
    [
        ("one\ntwo\n", True),
        ("one\ntoe\n", False),
        ("one\ntwo\nthree\n", False),
        ("one\n", False),
        ("none\ntwo\n", False),
    ],
)
def test_what_is_printed_is_compared(printed: str, is_it: bool) -> None:
    assert (pattern("one\nt...o\n").fullmatch(printed) is not None) is is_it


def test_a_line_of_dots_is_any_lines() -> None:
    assert pattern("...\nend\n").fullmatch("end\n")
    assert pattern("...\nend\n").fullmatch("a\nb\nend\n")
    assert not pattern("...\nend\n").fullmatch("a\nb\n")
