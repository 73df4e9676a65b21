"""The tree of shards: splits and merges, and parents that have expired."""

from __future__ import annotations

from sparkinesis.cli.streams.shards import shard_object, shard_rows
from sparkinesis.stream.shard import Lineage, Shard

Q = 2**126
"""A quarter of all hash keys."""


def shard(number: int, first: int, last: int, *parents: int, is_open: bool = False) -> Shard:
    """A shard that has the quarters from ``first`` to before ``last``."""
    names = tuple(f"shardId-{one:012}" for one in parents)
    keys = (first * Q, last * Q - 1)
    return Shard(f"shardId-{number:012}", names, is_open, keys, f"4959{number}")


LINEAGE = Lineage.of(
    [
        shard(5, 1, 4, 4, 2, is_open=True),
        shard(1, 0, 2, 0),
        shard(2, 2, 4, 0),
        shard(3, 0, 1, 1, is_open=True),
        shard(4, 1, 2, 1),
    ]
)


def test_a_tree_has_each_shard_once_below_its_first_parent() -> None:
    assert [tuple(row.values()) for row in shard_rows(LINEAGE)] == [
        ("shardId-000000000001", "closed", "0 % to 50 %", "50 %", "split of 0, no longer listed"),
        ("\u251c\u2500 shardId-000000000003", "open", "0 % to 25 %", "25 %", "split of 1"),
        ("\u2514\u2500 shardId-000000000004", "closed", "25 % to 50 %", "25 %", "split of 1"),
        ("shardId-000000000002", "closed", "50 % to 100 %", "50 %", "split of 0, no longer listed"),
        (
            "\u2514\u2500 shardId-000000000005",
            "open",
            "25 % to 100 %",
            "75 %",
            "merge of 2 and 4",
        ),
    ]


def test_branches_of_deep_trees() -> None:
    chain = [shard(0, 0, 4), shard(1, 0, 2, 0), shard(2, 2, 4, 0), shard(3, 0, 1, 1)]
    rows = shard_rows(Lineage.of([*chain, shard(4, 1, 2, 1), shard(5, 2, 3, 2), shard(6, 3, 4, 2)]))
    assert [row["shard"].replace("shardId-00000000000", "") for row in rows] == [
        "0",
        "\u251c\u2500 1",
        "\u2502  \u251c\u2500 3",
        "\u2502  \u2514\u2500 4",
        "\u2514\u2500 2",
        "   \u251c\u2500 5",
        "   \u2514\u2500 6",
    ]
    whole, *_ = rows
    assert (whole["hash keys"], whole["share"], whole["made by"]) == ("0 % to 100 %", "100 %", "-")


def test_an_object_has_both_parents_and_the_exact_keys() -> None:
    assert shard_object(LINEAGE.shards["shardId-000000000005"], LINEAGE) == {
        "shard": "shardId-000000000005",
        "state": "open",
        "parents": ["shardId-000000000004", "shardId-000000000002"],
        "children": [],
        "first_hash_key": str(Q),
        "last_hash_key": str(2**128 - 1),
        "first_sequence_number": "49595",
    }
    assert shard_object(LINEAGE.shards["shardId-000000000004"], LINEAGE)["children"] == [
        "shardId-000000000005"
    ]
