"""A prober looks into a shard: what its samples tell, and what they cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.options.checked_options import Allowance
from sparkinesis.source.planning.batch_end import Records
from sparkinesis.source.planning.probing.records_in_hand import Scale
from sparkinesis.source.planning.probing.shard_prober import ShardProber
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.retention import RetentionCheck
from tests.properties.conftest import START_MS
from tests.streams import put, records_of, split

SHARD = "shardId-000000000000"
LIMIT = Allowance(rows=10_000)


@dataclass(frozen=True)
class Probed:
    """A stream of one shard, and the probers that look into it."""

    server: LocalServer
    kinesis: Any
    clock: ManualClock
    client: type[StreamClient] = StreamClient

    def put(self, count: int) -> None:
        put(self.kinesis, "s", [b"x"] * count, key="k")

    def put_every_second(self, seconds: int, rate: int) -> None:
        for _ in range(seconds):
            self.put(rate)
            self.clock.advance(1000)

    def prober(self, limit: int, pace: Pace = Pace(0, 0)) -> ShardProber:  # noqa: B008 - frozen
        """A prober that has looked at the first records, so many of them."""
        address = StreamAddress("s", region="us-east-1", endpoint=self.server.endpoint_url)
        client = self.client(address)
        budget = ShardBudget(pace, itertools.count(0, 60).__next__, lambda seconds: None)
        made = ShardProber(client, SHARD, budget)
        made.probe(TRIM_HORIZON, RetentionCheck(client), Scale(LIMIT), limit)
        return made

    def numbers(self) -> list[str]:
        """The sequence numbers of all records."""
        return [record["SequenceNumber"] for record in records_of(self.kinesis, "s", SHARD)]


@pytest.fixture
def shard(server: LocalServer, clock: ManualClock) -> Probed:
    client = server.client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
    return Probed(server, client, clock)


class BehindUntilEmpty(StreamClient):
    """Answers as Kinesis may: a page with records is behind the tip, though none follow."""

    def get_records(self, *args: Any, **options: Any) -> Any:
        fetched = super().get_records(*args, **options)
        if not fetched.page.records:
            return fetched
        page = msgspec.structs.replace(fetched.page, millis_behind_latest=1000)
        return msgspec.structs.replace(fetched, page=page)


def at(second: float) -> int:
    return START_MS + int(second * 1000)


def rows(prober: ShardProber, second: float) -> float:
    """The estimated number of rows up to a second."""
    return prober.survey.weight(at(second)) * LIMIT.rows


def test_reading_on_passes_samples(shard: Probed) -> None:
    shard.put_every_second(300, 10)
    found = shard.prober(100)
    found.sample(at(50), 0.01)
    found.read_on(0.1)
    in_hand_until = found.survey.in_hand_until
    assert in_hand_until > at(100)
    assert all(window.end > in_hand_until for window in found.survey.windows)
    found.sample(at(60), 0.01)  # all of its records are in hand
    assert rows(found, 99.5) == pytest.approx(1000)


def test_a_sample_is_never_in_the_services_future(shard: Probed) -> None:
    shard.put(300)
    shard.clock.advance(1000)
    found = shard.prober(100)
    found.sample(at(3600), 0.02)
    assert found.survey.samples == 1


def test_the_end_is_after_the_last_record_of_an_extended_sample(shard: Probed) -> None:
    shard.put_every_second(300, 10)
    shard.put(150)
    shard.clock.advance(600_000)
    found = shard.prober(100)
    found.sample(at(300), 0.01)  # a hundred records of the burst, and then the rest
    end = found.find_end(at(899)).end.finding
    assert isinstance(end, Records)
    assert end.end == shard.numbers()[-1]


def test_a_closed_shards_end_is_met_after_a_pause_in_which_its_iterator_expires(
    shard: Probed,
) -> None:
    """No record is in hand, and the end comes after an empty page."""
    shard.put(1)
    end = AfterRecord(shard.numbers()[-1])
    split(shard.kinesis, "s")
    shard.clock.advance(1000)
    shard.server.kinesis.empty_pages = 1
    found = shard.prober(100)
    found.probe(end, found.front._check, Scale(LIMIT))
    assert found.front.at_tip
    shard.clock.advance(3_600_000)
    found.meet_end()
    assert found.front.is_finished
    assert len(found.front.children or ()) == 2


def test_a_search_that_meets_the_tip_without_a_record_is_in_the_survey(shard: Probed) -> None:
    """Else no look could add anything, and a plan would ask for more without end."""
    shard.put_every_second(10, 10)
    found = replace(shard, client=BehindUntilEmpty).prober(1000)
    assert found.survey.in_hand_until < math.inf
    found.find_end(at(60))
    assert found.survey.in_hand_until == math.inf


def test_samples_do_not_outlive_their_plan(shard: Probed) -> None:
    """The search for the end reads on from the only sample, which leaves its windows alone."""
    shard.put_every_second(100, 10)
    found = shard.prober(100)
    found.sample(at(90), 0.02)
    chosen = found.find_end(at(100))
    found.keep(chosen, TRIM_HORIZON, TRIM_HORIZON)
    assert (found._samples.windows, found._samples.is_bursty) == ([], False)


@pytest.mark.parametrize(
    ("pace", "most_calls", "most_records"), [(Pace(0, 0), 20, 100), (Pace(), 10, 2_000)]
)
def test_the_last_record_before_a_silence_is_found_with_few_calls_or_few_records(
    shard: Probed, pace: Pace, most_calls: int, most_records: int
) -> None:
    """Of a Kinesis without limits, calls cost less than the records of a second."""
    for _ in range(500):
        shard.put(10)
        shard.clock.advance(5)
    shard.clock.advance(60_000)
    prober = shard.prober(limit=100, pace=pace)
    shard.server.kinesis.calls.clear()
    end = prober.find_end(shard.clock() - 250).end
    assert isinstance(end.finding, Records)
    assert end.finding.end == shard.numbers()[-1]
    calls = list(shard.server.kinesis.calls.select("GetRecords"))[:-1]  # but that of `numbers`
    assert len(calls) <= most_calls
    assert sum(call.records for call in calls) <= most_records
