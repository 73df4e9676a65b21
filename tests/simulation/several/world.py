"""A world whose application reads several streams, which come, fail, go, and are made anew."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

from sparkinesis.worker.lifecycle.streams import several_streams
from tests.simulation import history as events
from tests.simulation.fleet import stream_name
from tests.simulation.owed_records import owed
from tests.simulation.producer import Producer, ShardLog
from tests.simulation.several.parts import current_parts
from tests.simulation.world import World

_MARK_AGAIN = 30.0
"""Seconds after which shards whose last record is not processed get another."""
_SHORTEST = 2.0
"""Seconds at least until a stream is made anew: its identifier counts whole ones."""


@dataclass
class Life:
    """A stream from its creation to its deletion; of one name there may be several in turn."""

    number: int
    """That of the stream: what its name ends with."""
    producer: Producer
    identifier: str
    """``<account>:<stream>:<creation epoch>``"""
    created_at: float
    """Virtual seconds."""
    ended_at: float | None = None

    @property
    def prefix(self) -> str:
        """What the keys of its leases begin with."""
        return f"{self.identifier}:"


@dataclass
class SeveralWorld(World):
    lives: list[list[Life]] = field(default_factory=list)
    """The streams that had a name, one after the other, by number."""
    tracked_at: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    """What the tracker answers from when on."""
    _coming: dict[int, int] = field(default_factory=dict)
    """The shards of the streams that are deleted and not yet made anew, by number."""

    def _make_producer(self) -> Producer:
        for number, one in enumerate(self.history.streams):
            self.lives.append([])
            self._create(number, one.shards)
        return self.lives[0][0].producer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinesis_client.names_streams = True
        self.tracked_at.append((0.0, self.fleet.tracked))

    def run(self) -> SeveralWorld:
        with mock.patch.object(several_streams, "ASK_EVERY", self.history.ask_every):
            super().run()
        return self

    # --- the streams

    def _create(self, number: int, shards: int) -> None:
        self._coming.pop(number, None)
        lives, name = self.lives[number], stream_name(number)
        tag = f"{number}.{len(lives)}/"
        producer = Producer(self.kinesis, self.scheduler, shards, 0.0, name=name, tag=tag)
        account = producer.stream.arn.split(":")[4]
        identifier = f"{account}:{name}:{producer.stream.created_ms // 1000}"
        self.journal.tags[identifier] = tag
        lives.append(Life(number, producer, identifier, self.scheduler.now))

    def current(self, number: int) -> Life | None:
        """The stream of that number; None while there is none."""
        life = self.lives[number][-1]
        return life if life.ended_at is None else None

    def all_lives(self) -> Iterator[Life]:
        for lives in self.lives:
            yield from lives

    def owed_lives(self) -> list[Life]:
        """The streams that the application is to read now."""
        lives = (self.current(number) for number in self.fleet.tracked)
        return [life for life in lives if life is not None]

    def life_of(self, key: str) -> Life | None:
        """The stream of a lease; None: the key names none that has ever been."""
        return next((life for life in self.all_lives() if key.startswith(life.prefix)), None)

    def _is_open(self, key: str) -> bool:
        life = self.life_of(key)
        shard = None if life is None else life.producer.shards.get(key.rpartition(":")[2])
        return life is not None and life.ended_at is None and shard is not None and shard.is_open

    def _count_shards(self) -> int:
        coming = sum(self._coming.get(number, 0) for number in self.fleet.tracked)
        return coming + sum(len(life.producer.stream.shards) for life in self.owed_lives())

    def logs(self) -> Iterator[ShardLog]:
        for life in self.all_lives():
            yield from life.producer.logs.values()

    def as_one(self) -> World:
        """The same as a world of one stream that has all shards, by the keys of their leases.

        Without the rows of former streams: they may name the last owner, who let them expire.
        """
        whole = copy.copy(self)
        whole.table = copy.copy(self.table)
        owed_now = {life.identifier for life in self.owed_lives()}
        whole.table.rows = {
            key: row
            for key, row in self.table.rows.items()
            if (life := self.life_of(key)) is None or life.identifier in owed_now
        }
        whole.producer = copy.copy(self.producer)
        lives = list(self.all_lives())
        whole.producer.shards = {
            life.prefix + name: shard
            for life in lives
            for name, shard in life.producer.shards.items()
        }
        return whole

    # --- what happens

    def _happen_to_streams(
        self, event: events.On | events.Track | events.TrackerFails | events.Anew
    ) -> None:
        now = self.scheduler.now
        if isinstance(event, events.Track):
            self.fleet.tracked = event.streams
            self.tracked_at.append((now, event.streams))
        elif isinstance(event, events.TrackerFails):
            self.fleet.tracker_fails = True
            self.scheduler.at(now + event.seconds, self._tracker_is_well)
        elif (life := self.current(event.stream)) is None:
            return
        elif isinstance(event, events.On):
            life.producer.happen(event.event)
        else:
            self.kinesis.call(
                "DeleteStream", StreamName=stream_name(event.stream), EnforceConsumerDeletion=True
            )
            life.ended_at, life.producer.is_gone = now, True
            if event.after is not None:
                at = now + max(event.after, _SHORTEST)
                self._coming[event.stream] = event.shards
                self.scheduler.at(at, partial(self._create, event.stream, event.shards))

    def _tracker_is_well(self) -> None:
        self.fleet.tracker_fails = False

    # --- the end

    def _mark(self, among: Container[str] | None = None) -> None:
        for life in self.owed_lives():
            shards = {
                shard.id
                for shard in life.producer.stream.open_shards
                if among is None or life.prefix + shard.id in among
            }
            marks = life.producer.put_marks(shards)
            self.marks |= {life.prefix + shard: data for shard, data in marks.items()}
        self._marked_at = self.scheduler.now

    def _mark_again(self) -> None:
        """Puts a new mark where the last is not processed, which a new lease may begin behind."""
        wait = min(_MARK_AGAIN, self.options.skip_older_than or _MARK_AGAIN)
        if self.scheduler.now - self._marked_at >= wait and (unmarked := self._unmarked()):
            self._mark(unmarked)

    def _unmarked(self) -> list[str]:
        marks, processed = self.marks, self.journal.processed
        return [key for key in sorted(self._open_keys()) if marks.get(key) not in processed]

    def _open_keys(self) -> list[str]:
        return [
            life.prefix + shard.id
            for life in self.owed_lives()
            for shard in life.producer.stream.open_shards
        ]

    def disorder(self) -> list[str]:
        if unread := [f"{key} is not read" for key in self._unmarked()[:3]] or self.unread():
            return unread
        if left := self._left():
            return left
        return [text for part in current_parts(self) for text in owed(part)][:3]

    def _left(self) -> list[str]:
        """Leases of former streams that are to be deleted, or that somebody still reads."""
        former, owed_now = self.history.former, {life.identifier for life in self.owed_lives()}
        wrong = []
        for slot in self.fleet.wanted():
            for status in slot.worker.status() if slot.worker is not None else ():
                life = self.life_of(status.lease)
                if life is None or life.identifier not in owed_now:
                    wrong.append(f"{status.lease} of a former stream is read by {slot.worker_id}")
        for key in self.table.lease_rows:
            life = self.life_of(key)
            # A worker that finds no stream at all does not start, and deletes nothing.
            if life is None or life.identifier in owed_now or not owed_now:
                continue
            may_go = former.only is None or life.number in former.only
            if former.delete_after is not None and may_go:
                wrong.append(f"{key} of a former stream is still there")
        return wrong[:3]
