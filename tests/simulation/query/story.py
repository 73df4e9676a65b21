"""A query's world told in lines: what happened, who did what, and what was wrong in the end."""

from __future__ import annotations

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
    lines = [f"{note.at:12.3f}  {note.by:<26} {note.text}" for note in world.notes]
    for each in sorted(world.tries, key=lambda each: each.began):
        rows = ", ".join(row.data.decode(errors="replace") for row in each.rows)
        how = "read" if each.is_whole else "did not end; read"
        told = f"a try of {each.shard_range.shard_id} in batch {each.batch} {how}"
        lines.append(f"{each.began:12.3f}  {told} {rows or 'nothing'}")
    return storytelling.page(history, lines, check(world), names, _LONGEST)
