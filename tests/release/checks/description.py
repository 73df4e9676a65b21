"""What PyPI shows of a release: the README with absolute links, and the project's URLs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.message import Message

URLS = ("Repository", "Documentation", "Changelog", "Issues")
"""The links that PyPI shows beside the text."""

_FENCE = re.compile(r"^( *)(```+)\w*\n.*?^\1\2$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(
    r"(!?)\[[^\]]*\]\(\s*([^)\s]+)[^)]*\)|<(?:img|a)\s[^>]*(?:src|href)=\"([^\"]+)\""
)
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)


def links(text: str) -> list[tuple[bool, str]]:
    """Return the links of a Markdown text outside of its blocks, and if each is a picture's."""
    text = _FENCE.sub("", text)
    found = [
        (one[1] == "!" or one[0].startswith("<img"), one[2] or one[3])
        for one in _LINK.finditer(text)
    ]
    return found + [(False, one[1]) for one in _REFERENCE.finditer(text)]


def block_problems(text: str, readme: str) -> list[str]:
    """Return what is wrong with the blocks of a text: they have to be those of the README."""
    mine, its = ([one[0] for one in _FENCE.finditer(each)] for each in (text, readme))
    return [] if mine == its else ["a block of the README was changed like a link"]


def link_problems(text: str, repository: str, version: str) -> list[str]:
    """Return what is wrong with the links of a text that PyPI shows.

    Links into the repository lead to the release's own files, and pictures to files, not to pages.
    """
    found = []
    for is_picture, link in links(text):
        if link.startswith("#"):
            continue
        if not re.match(r"https?://|mailto:", link):
            found.append(f"the link {link} is not absolute")
        elif link.startswith(f"{repository}/blob/"):
            if is_picture:
                found.append(f"the picture {link} is a page")
            elif not link.startswith(f"{repository}/blob/v{version}/"):
                found.append(f"the link {link} is not to version {version}")
    return found


def paths_in_repository(text: str, repository: str, version: str) -> list[str]:
    """Return the files of the repository that a text links to; each has to be there."""
    raw = repository.replace("//github.com/", "//raw.githubusercontent.com/")
    starts = f"{repository}/blob/v{version}/", f"{raw}/v{version}/"
    return [
        link.removeprefix(start).partition("#")[0]
        for _, link in links(text)
        for start in starts
        if link.startswith(start)
    ]


def metadata_problems(metadata: Message, expected: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the metadata of a wheel; ``expected``: values by field."""
    found = [
        f"{field} is {metadata[field]!r}, and not {value!r}"
        for field, value in expected.items()
        if metadata[field] != value
    ]
    urls = urls_of(metadata)
    found += [f"it has no URL {name}" for name in URLS if name not in urls]
    found += [
        f"the URL {name} is not https" for name in urls if not urls[name].startswith("https://")
    ]
    found += [
        f"it has no {field}"
        for field in ("Summary", "License-Expression", "Requires-Python", "Keywords")
        if not metadata[field]
    ]
    return found


def urls_of(metadata: Message) -> dict[str, str]:
    """Return the project's URLs by their labels."""
    texts: Iterable[str] = metadata.get_all("Project-URL") or []
    return dict(text.split(", ", 1) for text in texts)
