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


def test_roots_are_the_oldest_shards_kept() -> None:
    assert LINEAGE.roots() == ("a", "b", "f")


def test_open_shards() -> None:
    assert LINEAGE.open_shards() == ("c", "e", "f")


def test_children_that_a_shard_announces_extend_the_lineage() -> None:
    extended = LINEAGE.with_children([Shard("g", ("c",)), Shard("a", ("wrong",))])
    assert extended.children("c") == ("g",)
    assert extended.shards["a"].parents == ()
    assert LINEAGE.with_children([]) is LINEAGE
