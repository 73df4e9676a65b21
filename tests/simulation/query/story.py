"""A query's world told in lines: what happened, who did what, and what was wrong in the end."""

from __future__ import annotations

import pprint

from tests.simulation import storytelling
from tests.simulation.query.history import History
from tests.simulation.query.invariants import check
from tests.simulation.query.world import World

_LONGEST = 600
"""Characters of a line."""


def tell(history: History) -> str:
    """The story of a history, which is run once more for it; and what is wrong with it."""
    world = World(history).run()
    names = {
        row.id.sequence_number: row.data.decode(errors="replace")
        for row in world.streams.user_records
    }
    lines = [pprint.pformat(history, width=100, sort_dicts=False), ""]
    lines += [
        f"{note.at:12.3f}  {note.by:<26} {storytelling.shortened(note.text, names, _LONGEST)}"
        for note in world.notes
    ]
    for each in sorted(world.tries, key=lambda each: each.began):
        rows = ", ".join(row.data.decode(errors="replace") for row in each.rows)
        how = "read" if each.is_whole else "did not end; read"
        told = (
            f"a try of {each.shard_range.shard_id} in batch {each.batch} {how} {rows or 'nothing'}"
        )
        lines.append(f"{each.began:12.3f}  {storytelling.shortened(told, names, _LONGEST)}")
    lines += [
        "",
        *(
            storytelling.shortened(text, names, _LONGEST)
            for text in check(world) or ["Nothing was wrong."]
        ),
    ]
    return "\n".join(lines)
