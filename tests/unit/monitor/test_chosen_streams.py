"""What --stream and --region say of the streams of a table, and of the table's own place."""

from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.monitor.chosen_streams import ChosenStreams
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
