"""What --stream and --region say of the streams of a table, and of the table's own place."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from msgspec.structs import replace

from sparkinesis.errors import OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import BrokenLease
from sparkinesis.monitor.chosen_streams import (
    ChosenStreams,
    StreamSelector,
    replaced_streams,
    selected,
    shown_names,
    stream_lines,
    unread_streams,
)
from sparkinesis.monitor.watched import WatchedTable, unread_hash_keys
from sparkinesis.stream.address import CredentialSource, StreamIdentifier

MINE = "123456789012"
WEB, APP = StreamIdentifier(MINE, "web", 2), StreamIdentifier(MINE, "app", 2)


def arn(region: str, name: str) -> str:
    return f"arn:aws:kinesis:{region}:{MINE}:stream/{name}"


def streams(*given: str, region: str | None = None) -> ChosenStreams:
    return ChosenStreams.of(given, region, None, CredentialSource())


@pytest.mark.parametrize(
    ("given", "region", "found"),
    [
        (["web"], "eu-west-1", "eu-west-1"),
        ([arn("eu-north-1", "web")], None, "eu-north-1"),
        ([arn("eu-north-1", "web")], "eu-west-1", "eu-west-1"),
        ([arn("eu-north-1", "web"), arn("eu-west-2", "app")], None, None),
        ([arn("eu-north-1", "web"), "app"], None, "eu-north-1"),
        ([], None, None),
    ],
)
def test_the_region_of_the_table(given: list[str], region: str | None, found: str | None) -> None:
    assert streams(*given, region=region).table("app", None).region == found


def test_a_stream_of_another_region_is_named_by_its_arn() -> None:
    options = streams(arn("eu-north-1", "web"), "app", region="eu-west-1")
    assert options.address_of(WEB).region == "eu-north-1"
    assert options.address_of(WEB).arn == arn("eu-north-1", "web")
    assert options.address_of(APP).arn == arn("eu-west-1", "app")
    assert options.wanted([WEB, APP]) == {WEB, APP}
    assert streams("app").wanted([WEB, APP]) == {APP}
    assert streams("nope").wanted([WEB, APP]) == frozenset(), "it may have gone meanwhile"


def test_the_stream_of_a_table_whose_leases_name_none() -> None:
    assert streams().only() is None
    only = streams(arn("eu-north-1", "web")).only()
    assert only is not None
    assert (only.arn, only.region) == (arn("eu-north-1", "web"), "eu-north-1")
    with pytest.raises(OptionError, match="region is 'mars'"):
        streams(region="mars")


MINE, OTHERS = "123456789012", "999999999999"
APP = StreamIdentifier(MINE, "app", 30)
WEB, OLD_WEB = StreamIdentifier(MINE, "web", 20), StreamIdentifier(MINE, "web", 10)
FOREIGN_WEB = StreamIdentifier(OTHERS, "web", 5)


def lease(stream: StreamIdentifier | None, shard: str = "shardId-1", **given: object) -> Lease:
    row = Lease(shard, shard, ExtendedSequenceNumber("5"), owner="w", counter=3)
    return replace(row.in_stream(stream), **given)


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("web", [OLD_WEB, WEB, FOREIGN_WEB]),
        (f"arn:aws:kinesis:eu-west-1:{OTHERS}:stream/web", [FOREIGN_WEB]),
        (f"arn:aws:kinesis:eu-west-1:{MINE}:stream/web", [OLD_WEB, WEB]),
        (str(OLD_WEB), [OLD_WEB]),
        ("app", [APP]),
    ],
)
def test_a_stream_is_named_by_its_name_its_arn_or_its_identifier(
    text: str, streams: list[StreamIdentifier]
) -> None:
    every = [APP, WEB, OLD_WEB, FOREIGN_WEB]
    assert selected(every, [StreamSelector.parse(text)], "table") == streams


def test_a_name_is_shown_alone_unless_two_streams_have_it() -> None:
    assert shown_names([WEB, APP]) == {APP: "app", WEB: "web"}
    assert shown_names([WEB, APP, FOREIGN_WEB]) == {
        APP: "app",
        WEB: str(WEB),
        FOREIGN_WEB: str(FOREIGN_WEB),
    }


def test_a_stream_is_replaced_by_the_newest_of_its_own_account() -> None:
    older = StreamIdentifier(MINE, "web", 9)
    assert replaced_streams([WEB, older, APP, OLD_WEB, FOREIGN_WEB]) == {older: WEB, OLD_WEB: WEB}


def watched(*leases: Lease, seconds: float = 0.0) -> WatchedTable:
    return WatchedTable().after_scan(leases, 0.0).after_scan(leases, seconds)


def test_a_stream_is_unread_if_none_of_its_shards_has_a_live_owner() -> None:
    rows = [
        lease(APP),
        lease(WEB, owner=None),
        lease(WEB, "shardId-2", owner=None),
        lease(FOREIGN_WEB, owner=None),
        lease(FOREIGN_WEB, "shardId-2"),
    ]
    assert unread_streams(watched(*rows)) == {WEB}
    dead = [lease(APP), lease(WEB)]
    moving = WatchedTable().after_scan(dead, 0.0)
    moving = moving.after_scan([replace(dead[0], counter=4), dead[1]], 8.0)
    assert unread_streams(moving) == {WEB}
    assert unread_streams(moving, quiet=9.0) == frozenset()


def test_nothing_is_said_of_streams_if_no_worker_runs_at_all() -> None:
    assert not unread_streams(watched(lease(APP, owner=None), lease(WEB, owner=None)))


def test_lines_about_streams_name_a_few() -> None:
    def lines(*streams: StreamIdentifier, unread: Collection[StreamIdentifier]) -> list[str]:
        return stream_lines(shown_names(streams), replaced_streams(streams), unread)

    (line,) = lines(APP, WEB, unread={WEB})
    assert line.startswith("No live worker reads web, while workers read other streams: ")
    (line,) = lines(WEB, OLD_WEB, unread={OLD_WEB})
    assert line.startswith(f"Deleted and made anew: {OLD_WEB} (now {WEB}). ")
    many = [StreamIdentifier(MINE, f"s{n}", 1) for n in range(9)]
    (line,) = lines(APP, *many, unread=many)
    assert "s0, s1, s2, s3, s4 and 4 more, " in line
    assert lines(APP, WEB, unread=()) == []


def test_leases_are_in_the_order_of_the_streams_names_and_of_some_streams_only() -> None:
    rows = [lease(FOREIGN_WEB), lease(WEB), lease(APP), lease(OLD_WEB), lease(None)]
    broken = (BrokenLease("shardId-9", "x"), BrokenLease(f"{APP}:shardId-9", "x"))
    table = WatchedTable().after_scan(rows, 0.0, broken)
    assert [one.stream for one in table.leases] == [None, APP, OLD_WEB, WEB, FOREIGN_WEB]
    assert table.streams == {APP, OLD_WEB, WEB, FOREIGN_WEB}
    some = table.of({WEB, FOREIGN_WEB})
    assert [one.stream for one in some.leases] == [None, WEB, FOREIGN_WEB]
    assert some.broken == broken[:1]
    assert table.of({APP}).broken == broken


def test_a_broken_row_hides_the_hash_keys_of_its_own_stream_only() -> None:
    rows = [lease(APP, hash_range=(0, 9)), lease(WEB, hash_range=(0, 9))]
    table = WatchedTable().after_scan(rows, 0.0, (BrokenLease(f"{APP}:shardId-9", "x"),))
    assert list(unread_hash_keys(table)) == [WEB]
    both = WatchedTable().after_scan([rows[1], lease(OLD_WEB, hash_range=(0, 9))], 0.0)
    assert list(unread_hash_keys(both)) == [OLD_WEB, WEB], "of one name, and two streams"
