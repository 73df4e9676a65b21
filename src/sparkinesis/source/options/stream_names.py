"""The streams that the options ``streamName`` and ``streamARN`` name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from sparkinesis.errors import OffsetError, OptionError
from sparkinesis.source.options.values import known_regions, nearest_region
from sparkinesis.stream.address import STREAM_ARN, STREAM_NAME, StreamAddress, shown


def stream_addresses(
    names: str | None, arns: str | None, region: str | None, endpoint: str | None
) -> tuple[StreamAddress, ...]:
    if (names is None) == (arns is None):
        raise OptionError(
            "The stream to use is not clear. Give either the option streamName or the option "
            + ("streamARN, not both." if names is not None else "streamARN.")
        )
    if arns is not None:
        found = [_by_arn(arn, region, endpoint) for arn in _listed("streamARN", arns)]
    else:
        assert names is not None
        found = [_by_name(name, region, endpoint) for name in _listed("streamName", names)]
    regions = {address.region for address in found}
    if len(regions) > 1:
        raise OptionError(
            f"The option streamARN names streams in {_and(sorted(map(str, regions)))}; one source "
            "reads one region. Load a DataFrame for each region and union them."
        )
    twice = sorted({a.name for a in found if [b.name for b in found].count(a.name) > 1})
    if twice:
        raise OptionError(
            f"The stream {_and(twice)} is named more than once. The column stream and the offsets "
            "in the checkpoint identify a stream by its name. Load a DataFrame for each stream and "
            "union them."
        )
    return tuple(found)


def removed_stream(name: str, others: Sequence[StreamAddress]) -> StreamAddress:
    """Return the address of a stream that is no longer among those of a query, ``others``.

    Offsets name streams without their place. All streams of a query are in one place, unless their
    ARNs are of several accounts: then this raises `OffsetError`.
    """
    first = others[0]
    places = {address.arn.rpartition("/")[0] for address in others if address.arn}
    if len(places) > 1:
        raise OffsetError(
            f"A batch of the checkpoint was planned with rows of stream {shown(name)}, which the "
            "option streamARN no longer names, and the streams that it names are of several "
            f"accounts. Name {shown(name)} once more until that batch is finished."
        )
    return replace(first, name=name, arn=f"{places.pop()}/{name}" if places else None)


def _and(words: Sequence[str]) -> str:
    return " and ".join(words)


def _listed(option: Literal["streamName", "streamARN"], text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise OptionError(
            f"The option {option} is {shown(text)}, which has an empty entry between its commas."
        )
    return parts


def _by_arn(arn: str, region: str | None, endpoint: str | None) -> StreamAddress:
    found = STREAM_ARN.fullmatch(arn)
    if not found:
        raise OptionError(
            f"The option streamARN is {shown(arn)}; it takes the ARN of a stream, such as "
            "arn:aws:kinesis:eu-west-1:123456789012:stream/flights."
        )
    if region is not None and region != found["region"]:
        raise OptionError(
            f"The option streamARN names a stream in {found['region']}, but the option region "
            f"is {region}. Leave out the option region: the ARN contains it."
        )
    return StreamAddress(found["name"], arn, found["region"], endpoint, is_querys=True)


def _by_name(name: str, region: str | None, endpoint: str | None) -> StreamAddress:
    if not STREAM_NAME.fullmatch(name):
        raise OptionError(
            f"The option streamName is {shown(name)}; it takes the name of a stream, or several "
            "names separated by commas: 1 to 128 letters, digits, '_', '.' and '-' each."
        )
    if region is not None and endpoint is None and region not in known_regions():
        raise OptionError(
            f"The option region is {region!r}, and boto3 knows no Kinesis in that region. "
            f"{nearest_region(region)} If it is a new region, update boto3."
        )
    return StreamAddress(name, None, region, endpoint, is_querys=True)
