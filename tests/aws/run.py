"""One run of all probes on a service: makes what they need, measures, and removes it again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.stream.calls.explain import words
from sparkinesis.stream.reading.budget import Pace
from tests.aws.bench import PACE, Bench, OutOfTimeError, TimeLimit
from tests.aws.findings import Answer, Question
from tests.aws.probes import (
    arrival_order,
    at_timestamp,
    encodings,
    lease_table,
    positions,
    reshard,
    tip,
)
from tests.aws.resources import NotReadyError, Resource, Resources
from tests.aws.spending import Allowance, Use
from tests.aws.target import Target


@dataclass(frozen=True, slots=True)
class Probe:
    name: str
    questions: Sequence[Question]
    run: Callable[[Bench, str], Mapping[str, Answer]]
    """Measures on the bench, and on the main stream; returns the answers by key."""


PROBES = (
    Probe(
        "at_timestamp",
        at_timestamp.QUESTIONS,
        lambda bench, stream: at_timestamp.answers(at_timestamp.measure(bench, stream)),
    ),
    Probe(
        "order",
        arrival_order.QUESTIONS,
        lambda bench, stream: arrival_order.answers(arrival_order.measure(bench, stream)),
    ),
    Probe("tip", tip.QUESTIONS, lambda bench, stream: tip.answers(tip.measure(bench, stream))),
    Probe(
        "encoding",
        encodings.QUESTIONS,
        lambda bench, stream: encodings.answers(encodings.measure(bench, stream)),
    ),
    Probe(
        "reshard",
        reshard.QUESTIONS,
        lambda bench, stream: reshard.answers(reshard.measure(bench, stream)),
    ),
    Probe(
        "position",
        positions.QUESTIONS,
        lambda bench, _: positions.answers(positions.measure(bench)),
    ),
    Probe(
        "table",
        lease_table.QUESTIONS,
        lambda bench, _: lease_table.answers(lease_table.measure(bench)),
    ),
)
"""In their order: the reshard closes shards that those before it read."""

QUESTIONS = tuple(question for probe in PROBES for question in probe.questions)

MAIN_SHARDS = 2


@dataclass
class Outcome:
    """What a run found, used and could not remove."""

    answers: dict[str, Answer] = field(default_factory=dict)
    used: Use = field(default_factory=Use)
    seconds: float = 0.0
    not_removed: dict[Resource, str] = field(default_factory=dict)
    was_interrupted: bool = False


def run(
    target: Target,
    prefix: str,
    *,
    seconds: float,
    note: Callable[[str], None],
    probes: Sequence[Probe] = PROBES,
    pace: Pace = PACE,
) -> Outcome:
    """Run the probes within so many seconds; what was made is removed in any case.

    An error ends its probe, and the time limit or Ctrl-C all of them: their questions are answered
    by the reason. What had to be left is in the outcome.
    """
    limit = TimeLimit(seconds)
    allowance = Allowance()
    resources = Resources(target, prefix, allowance)
    outcome = Outcome()
    try:
        _probe(Bench(target, resources, allowance, limit, note, pace=pace), probes, outcome)
    except KeyboardInterrupt:
        outcome.was_interrupted = True
        _leave_out(probes, outcome, "interrupted")
    finally:
        with _uninterrupted(note):
            if resources.made:
                note(f"removing {', '.join(map(str, resources.made))}")
            outcome.not_removed = resources.remove_all()
    outcome.used = allowance.used
    outcome.seconds = limit.spent
    return outcome


def _probe(bench: Bench, probes: Sequence[Probe], outcome: Outcome) -> None:
    bench.note(f"making a stream of {MAIN_SHARDS} shards")
    try:
        stream = bench.resources.create_stream("main", MAIN_SHARDS)
    except (ClientError, BotoCoreError, NotReadyError) as error:
        _leave_out(probes, outcome, f"no stream could be made: {_said(error)}")
        return
    bench.note(f"stream {stream} is ACTIVE")
    for n, probe in enumerate(probes, 1):
        bench.note(f"probe {n} of {len(probes)}: {probe.name}")
        try:
            bench.limit.check()
            outcome.answers.update(probe.run(bench, stream))
        except OutOfTimeError as error:
            _leave_out(probes[n - 1 :], outcome, str(error))
            return
        except Exception as error:  # noqa: BLE001 - the others go on, and all is removed
            bench.note(f"probe {probe.name} failed: {_said(error)}")
            _leave_out([probe], outcome, f"the probe failed: {_said(error)}")


def _leave_out(probes: Sequence[Probe], outcome: Outcome, why: str) -> None:
    for probe in probes:
        for question in probe.questions:
            outcome.answers.setdefault(question.key, Answer(None, why))


def _said(error: Exception) -> str:
    if isinstance(error, ClientError | BotoCoreError):
        return words(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def _uninterrupted(note: Callable[[str], None]) -> Iterator[None]:
    """Let no Ctrl-C end the removal: what is left would cost money."""

    def ignore(number: int, frame: FrameType | None) -> None:
        note("still removing; what is left costs money until it is removed")

    try:
        before = {one: signal.signal(one, ignore) for one in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which gets no signals
        yield
        return
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
