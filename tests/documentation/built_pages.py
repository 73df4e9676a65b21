"""The pages of a built site, and those of their links that lead nowhere within it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src"}


@dataclass
class Page:
    """The links of a page, and what links can lead to."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if anchor := given.get("id"):
            self.page.anchors.add(anchor)
        if link := given.get(_LINKS.get(tag, "")):
            self.page.links.append(link)


def read_page(text: str) -> Page:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def read_pages(site: Path) -> dict[Path, Page]:
    return {path: read_page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def broken_links(pages: dict[Path, Page]) -> list[str]:
    """Return a line for each link to a file or an anchor that does not exist."""
    return [
        f"{path}: {link} leads nowhere"
        for path, page in pages.items()
        for link in page.links
        if not _leads_somewhere(pages, path, link)
    ]


def _leads_somewhere(pages: dict[Path, Page], path: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir() or not target.exists():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target not in pages or anchor in pages[target].anchors
