"""Links out of docs/ lead to the repository, and a broken link of the built site is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.extension.links import with_repository_links
from tests.documentation.building import differences
from tests.documentation.built_pages import broken_links, read_pages
from tests.documents import DOCS, ROOT

REPOSITORY = "https://example.org/project"


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        (
            "deploy.md",
            "../deploy/iam/worker.json",
            f"{REPOSITORY}/blob/main/deploy/iam/worker.json",
        ),
        ("sql.md", "../examples/pipeline", f"{REPOSITORY}/tree/main/examples/pipeline"),
        ("a/b.md", "../../README.md#why", f"{REPOSITORY}/blob/main/README.md#why"),
        ("a/b.md", "../options.md#columns", "../options.md#columns"),
        ("options.md", "#columns", "#columns"),
        ("options.md", "https://spark.apache.org/..", "https://spark.apache.org/.."),
    ],
)
def test_links_out_of_the_docs_lead_to_the_repository(page: str, link: str, shown: str) -> None:
    text = with_repository_links(f"See [this]({link}).", DOCS / page, DOCS, REPOSITORY)
    assert text == f"See [this]({shown})."
    assert (ROOT / "examples" / "pipeline").is_dir()


def test_links_of_the_site_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="#no"></a><a href="a/b.html#there%21"></a>'
        '<a href="a/b.html#gone"></a><img src="x.png"><a href="https://example.org/gone"></a>'
    )
    (tmp_path / "a" / "b.html").write_text(
        '<p id="there!"><a href="../index.html#top"></a><a href="..">'
    )
    found = broken_links(read_pages(tmp_path))
    assert [line.partition(": ")[2] for line in found] == [
        ".. leads nowhere",
        "#no leads nowhere",
        "a/b.html#gone leads nowhere",
        "x.png leads nowhere",
    ]


def test_differences_of_two_builds_are_found(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for site in (one, other):
        site.mkdir()
        (site / "same").write_text("same")
        (site / "page").write_text(str(site))
    (other / "more").write_text("")
    assert differences(one, other) == [
        "more is in one of two builds only",
        "page differs between two builds",
    ]
