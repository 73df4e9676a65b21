"""The course of the demo, and the checks of its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa

from examples.flights.display import Display, comparison
from examples.flights.events import (
    Figures,
    expected_figures,
    heard_last,
    load_airports,
    load_carriers,
    load_flights,
    to_events,
    to_json,
)
from examples.flights.page import page
from examples.flights.processes import REGION, STREAM, Child, endpoint_of, start_query, start_server
from examples.flights.producer import Producer
from examples.flights.results import Results
from examples.flights.shards import merge_two, open_shards, short, split_one
from examples.flights.story import Story

STALLED_SECONDS = 240.0
"""The demo fails after this time without progress.

On a busy machine, Spark takes a minute or more for its first batch.
"""


class DemoFailedError(Exception):
    """The result of the demo is wrong. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The number of flights, the rate, and the silence after which an aircraft is evicted."""

    flights: int | None
    """None: all of them."""
    events_per_second: float
    silence_days: int


FULL = Scale(None, float("inf"), silence_days=30)
QUICK = Scale(20_000, 5_000, silence_days=3)


class Demo:
    """One run in a folder of its own. `close` always ends all processes."""

    def __init__(self, scale: Scale, folder: Path) -> None:
        self._scale = scale
        self._folder = folder
        self._story = Story()
        self._summary: list[str] = []
        self._children: list[Child] = []

    def close(self) -> None:
        for child in self._children:
            child.kill()

    def run(self) -> None:
        """Run the demo. Raises `DemoFailedError`, and RuntimeError if a process cannot start."""
        server = self._keep(start_server(self._folder))
        self._endpoint = endpoint_of(server)
        self._query = self._start_query()
        flights = load_flights(self._scale.flights)
        events = to_events(flights)
        kinesis = boto3.client(
            "kinesis",
            region_name=REGION,
            endpoint_url=self._endpoint,
            aws_access_key_id="demo",
            aws_secret_access_key="demo",
        )
        keyed = list(zip(events["tail"].to_pylist(), to_json(events), strict=True))
        self._producer = Producer(kinesis, STREAM, keyed, self._scale.events_per_second)
        self._results = Results(self._folder)
        carriers = load_carriers()
        with Display(len(keyed), carriers) as self._display:
            self._display.note(
                f"{flights.num_rows:,} flights, {len(keyed):,} events, "
                f"{len(open_shards(kinesis, STREAM))} shards at {self._endpoint}"
            )
            self._list_shards(kinesis)
            killed = self._replay(kinesis, len(keyed))
            self._receive_all(events["id"])
            self._stop_query()
        self._verify(events, expected_figures(flights), carriers)
        shards = ", ".join(short(shard) for shard in open_shards(kinesis, STREAM))
        rate = len(keyed) / self._producer.seconds
        self._summary = [
            f"{flights.num_rows:,} flights, {len(keyed):,} events: each came out of Spark once.",
            f"The query was killed with kill -9 in the middle of batch {killed}.",
        ]
        self._display.console.print(
            f"{self._display.seconds:.0f} s; {rate:,.0f} events/s put "
            f"({self._producer.throttled:,} records throttled and sent again); "
            f"{len(self._results.batches)} batches, killed in batch {killed}; "
            f"open shards at the end: {shards}"
        )

    def page(self) -> str:
        """Return the page of a run that has ended well."""
        return page(self._story, load_airports(), self._summary)

    def _replay(self, kinesis: Any, total: int) -> int:
        """Put all events while the stream is resharded; return the batch that was killed."""
        self._producer.start()
        # Most events wait until Spark is up, the rest until the query was killed.
        self._producer.allow(total // 4)
        self._until(lambda: len(self._results.batches) > 0 and self._results.board_has_begun())
        self._display.note("Spark has written its first batch")
        self._producer.allow(total * 6 // 10)
        self._until(lambda: self._producer.sent >= total // 3)
        self._mark(f"shard {split_one(kinesis, STREAM)} split")
        self._list_shards(kinesis)
        self._until(lambda: self._producer.sent >= total // 2)
        killed = self._kill_in_a_batch()
        self._producer.allow(total)
        self._until(lambda: self._producer.sent >= total * 2 // 3)
        self._mark(f"shards {merge_two(kinesis, STREAM)} merged")
        self._list_shards(kinesis)
        self._until(lambda: killed in self._results.batches)
        self._display.note(f"batch {killed} was run again and written")
        self._until(lambda: self._producer.sent == total)
        self._display.note("all events were put")
        return killed

    def _kill_in_a_batch(self) -> int:
        while True:
            self._until(self._results.unfinished_batch)
            self._query.kill()
            killed = self._results.uncommitted_batch()
            self._query = self._start_query()
            if killed is not None:
                self._mark(f"query killed (kill -9) in the middle of batch {killed}")
                self._display.note("query started again, to resume from its checkpoint")
                return killed
            self._display.note("query killed (kill -9) just after a batch; trying again")

    def _mark(self, text: str) -> None:
        self._display.note(text)
        self._story.marks.append((self._display.seconds, text))

    def _list_shards(self, kinesis: Any) -> None:
        shards = {short(shard): keys for shard, keys in open_shards(kinesis, STREAM).items()}
        self._story.listings.append((self._display.seconds, shards))

    def _receive_all(self, ids: pa.Array) -> None:
        def complete() -> bool:
            return self._results.rows >= len(ids) and not self._lost(ids)

        self._until(complete, lambda: _missing(self._lost(ids)))
        self._display.note("all events came out of Spark")

    def _lost(self, ids: pa.Array) -> list[str]:
        return self._results.lost_and_duplicated(ids)[0]

    def _stop_query(self) -> None:
        """Let the board catch up, and both queries end gracefully."""
        self._query.ask_to_stop()
        self._until(lambda: self._query.exit_code is not None, stopping=True)
        if self._query.exit_code != 0:
            raise DemoFailedError(f"The query did not stop gracefully:\n{self._query.last_words()}")
        self._results.refresh()
        self._display.note("query stopped")

    def _verify(
        self, events: pa.Table, expected: dict[str, Figures], carriers: dict[str, str]
    ) -> None:
        out = self._results
        print_ = self._display.console.print
        print_(comparison(out.figures, expected, carriers))
        lost, duplicated = out.lost_and_duplicated(events["id"])
        known = heard_last(events, timedelta(days=self._scale.silence_days))
        board_is_right = known == {who: heard.kind for who, heard in out.board.heard.items()}
        verdict = "equal to" if board_is_right else "DIFFERENT from"
        print_(
            f"board: {len(out.board.in_the_air)} of {len(known):,} aircraft in the air, "
            f"{out.board.evicted:,} evicted: {verdict} the data set"
        )
        print_(f"{len(lost)} lost, {duplicated} duplicated")
        if lost or duplicated:
            raise DemoFailedError(_missing(lost) if lost else "Events came out more than once.")
        if out.figures != expected:
            raise DemoFailedError("The figures of Spark differ from those of the data set.")
        if not board_is_right:
            raise DemoFailedError("The board differs from the data set.")

    def _until(
        self,
        condition: Callable[[], bool],
        stuck: Callable[[], str] = lambda: "",
        *,
        stopping: bool = False,
    ) -> None:
        """Show the progress until the condition holds. Raises `DemoFailedError`."""
        seen, since = None, time.monotonic()
        while not condition():
            self._results.refresh()
            sent, out = self._producer.sent, self._results
            self._display.show(sent, out)
            self._story.note(self._display.seconds, sent, out.rows, out.board)
            if self._producer.failure is not None:
                raise DemoFailedError(f"The producer failed: {self._producer.failure!r}")
            if self._query.exit_code is not None and not stopping:
                raise DemoFailedError(f"The query ended:\n{self._query.last_words()}")
            now = self._producer.sent, self._results.rows
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > STALLED_SECONDS:
                raise DemoFailedError(
                    f"There was no progress for {STALLED_SECONDS:.0f} s. {stuck()}\n"
                    f"{self._query.last_words()}"
                )
            time.sleep(0.02)

    def _start_query(self) -> Child:
        silence = f"{self._scale.silence_days} days"
        return self._keep(start_query(self._endpoint, silence, self._folder))

    def _keep(self, child: Child) -> Child:
        self._children.append(child)
        return child


def _missing(lost: list[str]) -> str:
    return f"{len(lost):,} events are missing, among them {', '.join(lost[:5])}."
