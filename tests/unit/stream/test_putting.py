"""A putter puts again what landed in the wrong shard, and reports why all was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparkinesis.errors import ServiceError
from sparkinesis.stream import putting
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.put_entry import PutEntry, PutResult
from sparkinesis.stream.putting import Putter
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard, ShardMap

HALF = MAX_HASH_KEY // 2
PARENT = Shard("parent", hash_range=(0, MAX_HASH_KEY))
CHILDREN = [Shard("low", hash_range=(0, HALF)), Shard("high", hash_range=(HALF + 1, MAX_HASH_KEY))]
THROTTLED = PutResult(None, "ProvisionedThroughputExceededException", "rate exceeded")
BROKEN = PutResult(None, "InternalFailure", "sorry")

Answer = Callable[[PutEntry], PutResult]


class Service:
    """A stream that answers calls in order. The last answer and the last shards stay."""

    def __init__(self, answers: Sequence[Answer], shards: Sequence[Sequence[Shard]]) -> None:
        self.address = StreamAddress("s", region="us-east-1")
        self.answers, self.shards = list(answers), list(shards)
        self.listings = 0
        self.put: list[list[list[bytes]]] = []
        """The data of the user records in each entry of each call."""

    def shard_map(self) -> ShardMap:
        self.listings += 1
        return ShardMap.of(self.shards.pop(0) if len(self.shards) > 1 else self.shards[0])

    def put_records(self, entries: Sequence[PutEntry]) -> list[PutResult]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.put.append([[data for _, _, data in entry.members] for entry in entries])
        return [answer(entry) for entry in entries]


def putter(
    monkeypatch: pytest.MonkeyPatch, service: Service, give_up_after: float = 30.0, **how: Any
) -> Putter:
    monkeypatch.setattr(putting, "StreamClient", lambda *_: service)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    retry = Backoff(1.0, 1.0, give_up_after, lambda: now[0], sleep, lambda _, most: most)
    return Putter(service.address, retry, **how)


def rows(*keys: int) -> list[tuple[str, str, bytes]]:
    return [(f"k{key}", str(key), b"%d" % key) for key in keys]


def owner(shards: Sequence[Shard]) -> Answer:
    """The shard that owns an entry's hash key stores it."""

    def answer(entry: PutEntry) -> PutResult:
        key = int(entry.explicit_hash_key or 0)
        return PutResult(next(shard.id for shard in shards if shard.owns(key)))

    return answer


@pytest.mark.parametrize("ordered", [True, False])
def test_an_aggregate_of_two_new_shards_is_put_again_once(
    monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    service = Service([owner(CHILDREN)], [[PARENT], [PARENT], CHILDREN])
    with putter(monkeypatch, service, ordered=ordered, aggregate_size=1000) as one:
        one.put(rows(1, MAX_HASH_KEY))
        one.flush()
        one.put(rows(2, 3, MAX_HASH_KEY))
    last = b"%d" % MAX_HASH_KEY
    assert service.put == [[[b"1", last]], [[b"1"], [last]], [[b"2", b"3"], [last]]]
    assert service.listings == 3, "the first one behind the reshard does not show it yet"


def test_an_aggregate_within_a_new_shard_is_not_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service([owner(CHILDREN)], [[PARENT], CHILDREN])
    with putter(monkeypatch, service, aggregate_size=1000) as one:
        one.put(rows(1, 2))
    assert service.put == [[[b"1", b"2"]]]


def test_a_stream_that_ignores_hash_keys_gets_an_aggregate_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service([lambda _: PutResult("high")], [CHILDREN])
    with putter(monkeypatch, service, aggregate_size=1000) as one:
        one.put(rows(1, 2))
        one.flush()
        one.put(rows(3, 4))
    assert service.put == [[[b"1", b"2"]], [[b"3", b"4"]]]
    assert caplog.text.count("distributes records itself") == 1


def test_an_error_counts_the_refusals_since_the_last_acceptance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = PutResult("parent")
    service = Service([lambda _: BROKEN, lambda _: stored, lambda _: THROTTLED], [[PARENT]])
    one = putter(monkeypatch, service, give_up_after=2.5)
    one.put(rows(1))
    one.flush()
    one.put(rows(2))
    with pytest.raises(ServiceError, match="add shards") as error:
        one.flush()
    assert "ProvisionedThroughputExceededException (4 times)." in str(error.value)
    assert "InternalFailure" not in str(error.value)
