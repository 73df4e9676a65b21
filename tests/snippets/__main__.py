"""Prints how many blocks of README.md and docs/ are in each class, or each block with its class.

python -m tests.snippets [--all]
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.snippets.collecting import How, pages, snippets

if __name__ == "__main__":
    found = [each for page in pages() for each in snippets(page)]
    if "--all" in sys.argv:
        for each in found:
            print(f"{each.how.name:10} {each} {each.block.language} {each.why}")
    count = Counter(each.how for each in found)
    for how in How:
        print(f"{count[how]:4} {how.value}")
