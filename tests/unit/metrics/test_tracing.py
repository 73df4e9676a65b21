"""The interface of spans: nothing is opened unless an exporter opens spans."""

from __future__ import annotations

from sparkinesis.metrics.metrics import OFF, AllMetrics
from sparkinesis.metrics.tally import Tally
from sparkinesis.metrics.tracing import NO_TRACING, NoTracing, tracing_of


class TracedTally(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.tracing = NoTracing()


def test_the_first_system_that_opens_spans_opens_them() -> None:
    assert tracing_of(OFF) is NO_TRACING
    assert tracing_of(AllMetrics([Tally()])) is NO_TRACING
    first, second = TracedTally(), TracedTally()
    assert tracing_of(AllMetrics([Tally(), first, second])) is first.tracing


def test_a_batch_that_nobody_traces_is_not_looked_at() -> None:
    with NO_TRACING.process("s", "shardId-0", extent=lambda: 1 / 0):  # type: ignore[arg-type, return-value]
        pass
