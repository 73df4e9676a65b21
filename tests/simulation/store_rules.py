"""Invariants of applications with a store of their own: each result once, and only the owner's."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.own_store import Access
from tests.simulation.world import World

_SECOND = 1_000_000
"""The digits of a token below its second, which are random."""


def results_are_stored_once(world: World) -> Iterator[str]:
    """Each record that was processed has one result, whatever was delivered again."""
    if not world.history.has_store:
        return
    results = world.journal.store.results
    for data, count in results.items():
        if count != 1:
            yield f"{data} was stored {count} times"
    for data in world.journal.processed.keys() - results.keys():
        yield f"{data} was processed, but not stored"


def old_tokens_never_write(world: World) -> Iterator[str]:
    """No result lands after another reader has claimed the shard; no two have one token."""
    claimed: dict[str, Access] = {}
    readers: dict[tuple[str, int], int] = {}
    for one in world.journal.store.accesses:
        if one.what == "claims":
            claimed[one.shard] = one
            first = readers.setdefault((one.shard, one.token), one.reader)
            if first != one.reader:
                yield f"at {one.at:.3f} readers {first}, {one.reader} of {one.shard} share a token"
        elif one.what == "stores" and claimed[one.shard].reader != one.reader:
            yield (
                f"at {one.at:.3f} {one.process} stored a result of {one.shard}, which "
                f"{claimed[one.shard].process} had claimed at {claimed[one.shard].at:.3f}"
            )


def newer_tokens_are_larger(world: World) -> Iterator[str]:
    """A claim is refused only if a later acquisition of the lease has claimed the shard.

    Unless the two acquisitions are of one second, with a new row in between.
    """
    acquisitions: list[tuple[float, str, int]] = []
    for write, before, after in world.leases():
        token = None if after is None else after.fencing_token
        if token is not None and (before is None or before.fencing_token != token):
            acquisitions.append((write.at, write.key, token))

    def acquired(access: Access) -> float:
        place = access.shard, access.token
        return max(at for at, *found in acquisitions if at <= access.at and (*found,) == place)

    newest: dict[str, Access] = {}
    for one in world.journal.store.accesses:
        if one.what == "claims":
            newest[one.shard] = one
        elif one.what == "is refused a claim":
            known = newest[one.shard]
            mine, others = acquired(one), acquired(known)
            if mine >= others and not _are_of_one_second(one.token, known.token):
                yield (
                    f"at {one.at:.3f} {one.process} was refused {one.shard} with {one.token}, "
                    f"which it acquired at {mine:.3f}; {known.token} is of {others:.3f}"
                )


def _are_of_one_second(token: int, other: int) -> bool:
    return token // _SECOND == other // _SECOND > 0


STORE = (results_are_stored_once, old_tokens_never_write, newer_tokens_are_larger)
