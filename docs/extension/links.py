"""The links of pages to files outside of docs/, which the site does not have."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")


def with_repository_links(text: str, page: Path, docs: Path, repository: str) -> str:
    """Return the text of a page whose links out of ``docs`` lead to the repository's files."""

    def leading(link: re.Match[str]) -> str:
        if ":" in link[1]:
            return link[1]
        target = Path(posixpath.normpath((page.parent / link[1]).as_posix()))
        if target.is_relative_to(docs) or not target.is_relative_to(docs.parent):
            return link[1]
        kind = "tree" if target.is_dir() else "blob"
        return f"{repository}/{kind}/main/{target.relative_to(docs.parent).as_posix()}"

    return _LINK.sub(leading, text)
