"""Builds the documentation site into build/site, checks its links, and builds it once more.

python -m tests.documentation         # twice, and compares the bytes
python -m tests.documentation --once  # for a look at a page
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.documentation.building import begin_build, differences, finish
from tests.documentation.built_pages import broken_links, read_pages
from tests.documents import DOCS, ROOT

SITE = ROOT / "build" / "site"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make docs", description=__doc__.splitlines()[0])
    parser.add_argument("--once", action="store_true", help="build it a single time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder, "site")
        builds = [begin_build(DOCS, site) for site in ([SITE] if given.once else [SITE, again])]
        problems = [text for build in builds for text in finish(build)]
        if not problems:
            problems = broken_links(pages := read_pages(SITE))
            problems += [] if given.once else differences(SITE, again)
    if problems:
        print("\n".join(dict.fromkeys(problems)), file=sys.stderr)
        return 1
    links = sum(len(page.links) for page in pages.values())
    print(f"{len(pages)} pages, {links:,} links, none of which is broken")
    if not given.once:
        print("A second build has the same bytes.")
    print(SITE / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
