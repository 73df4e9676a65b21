"""Lineage: which shard came from which."""

from __future__ import annotations

from sparkinesis.stream.shard import Lineage, Shard

#   a   b        a split into c and d; d and b merged into e; e's parent x is not listed any more
LINEAGE = Lineage.of(
    [
        Shard("a", (), False),
        Shard("b", (), False),
        Shard("c", ("a",)),
        Shard("d", ("a",), False),
        Shard("e", ("d", "b")),
        Shard("f", ("x",)),
    ]
)


def test_children_of_splits_and_merges() -> None:
    assert LINEAGE.children("a") == ("c", "d")
    assert LINEAGE.children("b") == LINEAGE.children("d") == ("e",)
    assert LINEAGE.children("c") == ()
    assert LINEAGE.children("x") == ("f",)


def test_ancestors_and_descendants_over_generations() -> None:
    assert LINEAGE.ancestors(("e",)) == {"a", "b", "d"}
    assert LINEAGE.descendants(("a",)) == {"c", "d", "e"}
    assert LINEAGE.ancestors(("f",)) == frozenset()
    assert LINEAGE.roots() == ("a", "b", "f"), "the oldest shards kept"
    assert LINEAGE.open_shards() == ("c", "e", "f")


def test_children_that_a_shard_announces_extend_the_lineage() -> None:
    extended = LINEAGE.with_children([Shard("g", ("c",)), Shard("a", ("wrong",))])
    assert extended.children("c") == ("g",)
    assert extended.shards["a"].parents == ()
    assert LINEAGE.with_children([]) is LINEAGE


FIRST, SECOND, ALL = (0, 49), (50, 99), (0, 99)


def closed(shard_id: str, hash_range: tuple[int, int], *parents: str) -> Shard:
    return Shard(shard_id, parents, False, hash_range)


def opened(shard_id: str, hash_range: tuple[int, int], *parents: str) -> Shard:
    return Shard(shard_id, parents, True, hash_range)


def test_a_listing_that_shows_the_end_has_all_children() -> None:
    split = Lineage.of(
        [closed("1", ALL), closed("2", FIRST, "1"), opened("3", SECOND, "1"), opened("4", FIRST)]
    )
    assert split.children_of_ended("1") == ("2", "3")
    merged = Lineage.of([closed("1", FIRST), closed("2", SECOND), opened("3", ALL, "1", "2")])
    assert merged.children_of_ended("1") == merged.children_of_ended("2") == ("3",)


def test_a_listing_from_before_the_end_tells_no_children() -> None:
    assert Lineage.of([opened("1", ALL)]).children_of_ended("1") is None
    assert Lineage.of([closed("1", ALL)]).children_of_ended("1") is None
    half = Lineage.of([closed("1", ALL), opened("2", FIRST, "1")])
    assert half.children_of_ended("1") is None
    # From before the shard itself came into being.
    assert Lineage.of([opened("1", ALL)]).children_of_ended("2", FIRST) is None
    assert Lineage.of([]).children_of_ended("1", ALL) is None


def test_a_listing_from_after_the_children_expired_tells_that_there_are_none() -> None:
    later = Lineage.of([opened("4", FIRST, "2"), opened("5", SECOND, "3")])
    assert later.children_of_ended("1", ALL) == ()
    assert later.children_of_ended("1") == ()
    one_expired = Lineage.of([opened("3", SECOND, "1"), opened("4", FIRST, "2")])
    assert one_expired.children_of_ended("1", ALL) == ("3",)


def test_children_that_the_end_has_named_need_no_listing_of_it() -> None:
    lineage = Lineage.of([opened("1", ALL)])
    named = lineage.with_children([opened("2", FIRST, "1"), opened("3", SECOND, "1")])
    assert named.children_of_ended("1") == ("2", "3")
