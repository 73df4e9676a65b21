"""`sparkinesis shards`: shows the shards of a stream, with their parents and children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from sparkinesis.cli.command_options import (
    KinesisEndpoint,
    Profile,
    Region,
    StreamName,
    errors_in_one_line,
    print_objects,
)
from sparkinesis.stream.address import CredentialSource, stream_address
from sparkinesis.stream.shard import Lineage, Shard
from sparkinesis.terminal.printing import counted, print_table, say, short_shard

_ALL_KEYS = 2**128


@errors_in_one_line("shards")
def shards(
    *,
    stream: StreamName,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each shard.")
    ] = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Show the shards of a stream as a tree: what splits and merges made of them.

    Each shard is below its parent. A shard of a merge is below its first parent, and names both.
    Hash keys are percentages of all: a new record is in the open shard that has the hash of its
    partition key.
    """
    address = stream_address(stream, region, endpoint, CredentialSource(profile))
    # boto3 is slow to import, and not all commands need it.
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415

    found, _ = StreamClient(address).list_shards()
    lineage = Lineage.of(found)
    if as_json:
        print_objects(shard_object(lineage.shards[one], lineage) for one in sorted(lineage.shards))
        return
    print_table(shard_rows(lineage))
    say()
    say(f"{counted(len(found), 'shard')}, {len(lineage.open_shards())} open")


def shard_rows(lineage: Lineage) -> list[dict[str, str]]:
    """Return a row for each shard, below that of its first listed parent."""
    return [
        {
            "shard": f"{branch}{shard.id}",
            "state": "open" if shard.is_open else "closed",
            "hash keys": _keys(shard),
            "share": _share(shard),
            "made by": _origin(shard, lineage),
        }
        for branch, shard in _tree(lineage, lineage.roots(), [])
    ]


def shard_object(shard: Shard, lineage: Lineage) -> dict[str, Any]:
    """Return the object of a shard for programs."""
    first, last = shard.hash_range or (None, None)
    return {
        "shard": shard.id,
        "state": "open" if shard.is_open else "closed",
        "parents": list(shard.parents),
        "children": list(lineage.children(shard.id)),
        "first_hash_key": None if first is None else str(first),
        "last_hash_key": None if last is None else str(last),
        "first_sequence_number": shard.starting_sequence_number,
    }


def _tree(
    lineage: Lineage, shard_ids: Sequence[str], last: list[bool]
) -> Iterator[tuple[str, Shard]]:
    """Yield the shards with the branches before them. ``last``: if each ancestor is the last."""
    for number, shard_id in enumerate(shard_ids):
        is_last = number == len(shard_ids) - 1
        inner = "".join("   " if one else "\N{BOX DRAWINGS LIGHT VERTICAL}  " for one in last[1:])
        corner = (
            "\N{BOX DRAWINGS LIGHT UP AND RIGHT}"
            if is_last
            else "\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}"
        )
        branch = f"{inner}{corner}\N{BOX DRAWINGS LIGHT HORIZONTAL} " if last else ""
        yield branch, lineage.shards[shard_id]
        below = [one for one in lineage.children(shard_id) if _is_first(lineage, shard_id, one)]
        yield from _tree(lineage, below, [*last, is_last])


def _is_first(lineage: Lineage, parent: str, child: str) -> bool:
    return min(lineage.listed_parents(child)) == parent


def _origin(shard: Shard, lineage: Lineage) -> str:
    if not shard.parents:
        return "-"
    names = " and ".join(map(short_shard, sorted(shard.parents)))
    how = "merge" if len(shard.parents) > 1 else "split"
    gone = "" if lineage.listed_parents(shard.id) else ", no longer listed"
    return f"{how} of {names}{gone}"


def _keys(shard: Shard) -> str:
    if shard.hash_range is None:
        return "-"
    first, last = shard.hash_range
    return f"{_percent(first)} to {_percent(last + 1)}"


def _share(shard: Shard) -> str:
    if shard.hash_range is None:
        return "-"
    first, last = shard.hash_range
    return _percent(last + 1 - first)


def _percent(keys: int) -> str:
    return f"{100 * keys / _ALL_KEYS:.4g} %"
