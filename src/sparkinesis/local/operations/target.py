"""The stream and shard that a request names, for fault plans and the call log."""

from __future__ import annotations

from sparkinesis.local.encoding import requests
from sparkinesis.local.model.tokens import ListShardsToken, ShardIterator, unseal

_NAMES_A_STREAM = ("stream", "consumer", "resource")


def target(request: requests.Request) -> tuple[str | None, str | None]:
    """Return the names of the stream and the shard; None for a missing one."""
    if isinstance(request, requests.GetRecords):
        token = unseal(request.shard_iterator, ShardIterator)
        return (token.stream, token.shard) if token is not None else (None, None)
    if isinstance(request, requests.ListShards) and request.next_token is not None:
        listing = unseal(request.next_token, ListShardsToken)
        return (listing.stream if listing is not None else None), None
    stream: str | None = getattr(request, "stream_name", None)
    arn: str | None = next(
        filter(None, (getattr(request, f"{kind}_arn", None) for kind in _NAMES_A_STREAM)), None
    )
    if stream is None and arn is not None:
        stream = arn.partition(":stream/")[2].partition("/")[0]
    shard: str | None = (
        getattr(request, "shard_id", None)
        or getattr(request, "shard_to_split", None)
        or getattr(request, "shard_to_merge", None)
    )
    return stream, shard
