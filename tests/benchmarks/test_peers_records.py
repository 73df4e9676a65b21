from __future__ import annotations

import sys

from benchmarks.peers.backlog import STOCKS, Run, in_turn
from benchmarks.peers.competitors import PEERS, SPARKINESIS
from benchmarks.peers.records import Backlog

BY_NAME = {each.name: each for each in (SPARKINESIS, *PEERS)}


def test_each_record_has_a_number_of_its_own_and_the_size() -> None:
    backlog = Backlog(3, 30, 40)
    found = [each for shard in range(3) for each in backlog.of_shard(shard)]
    assert {len(each) for each in found} == {40}
    numbers = [int.from_bytes(each[:8], sys.byteorder) for each in found]
    assert sorted(numbers) == list(range(30))


def test_rounds_go_through_the_competitors_from_either_end() -> None:
    stock = STOCKS[0]
    names = ("sparkinesis", "kclpy-ext", "boto3")
    runs = [Run(BY_NAME[name], stock, reading) for reading in stock.readings for name in names]

    def turn(number: int) -> list[str]:
        return [run.competitor.name for run in in_turn(runs, number)]

    assert turn(0) == [*names, *names]
    assert turn(1) == [*names[::-1], *names[::-1]]
    assert turn(2) == ["sparkinesis", "boto3", "sparkinesis", "boto3"]
    cases = [run.reading.case for run in in_turn(runs, 1)]
    assert cases == [stock.readings[0].case] * 3 + [stock.readings[1].case] * 3
