"""The plan of one batch in one stream: which shards are probed, and what is known of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from sparkinesis.source.offsets import ANY_SHARD, Positions, start_of
from sparkinesis.source.options.checked_options import Allowance
from sparkinesis.source.planning.batch_end import AssembledEnd, Finding, NoRows, Walk, assemble
from sparkinesis.source.planning.batch_instant import Choice, ReadOn, SampleAt, Wanted
from sparkinesis.source.planning.kept import Kept
from sparkinesis.source.planning.probe_threads import MOST_THREADS, threads_for
from sparkinesis.source.planning.probing.end_in_shard import EndInShard, Resumption
from sparkinesis.source.planning.probing.records_in_hand import Scale
from sparkinesis.source.planning.probing.shard_prober import FIRST_LIMIT, ShardProber
from sparkinesis.source.planning.probing.survey import Survey
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.position import END_OF_TIME_MS, TRIM_HORIZON, Position

SMALLEST_PROBE = 50
"""The fewest records of a first probe, however small the share of a shard."""

SHORT_OF_TIP_MS = 250
"""The distance of a batch's end to the tip, if records must be found by time: a busy shard has a
record that young."""

MOST_IN_FLIGHT = MOST_THREADS
"""The most probes of quiet shards whose requests one thread has sent, and not received: the calls
under way are as many as by threads."""

MOST_RECEIVED = 16 * 2**20
"""Bytes of pages that wait for a thread; then all further shards are probed by threads."""

MAX_LISTINGS = 12
"""Consecutive listings, a minute in all, to find a closed shard's children at a query's end."""


class StreamPlan:
    """The plan of one batch in one stream. Lives until the batch's end is found.

    Only quiet shards, which are open and have no record, are asked nothing more after the first
    probe: of thousands of shards, a plan considers those that have records.
    """

    def __init__(
        self,
        stream: StreamTools,
        kept: Kept,
        start: Positions,
        allowance: Allowance,
        until_ms: int | None,
    ) -> None:
        """Make a plan from ``start``, whose shards exist.

        until_ms: the instant (epoch ms) at which the query ends; None: it goes on.
        """
        self.start = start
        self.active: dict[str, ShardProber] = {}
        """The probers of shards that have records, or are closed."""
        self.quiet: dict[str, ShardProber] = {}
        """The probers of the other shards that the batch may read."""
        self.children: dict[str, ShardProber] = {}
        """The probers of children that the next batch may read."""
        self._stream = stream
        self._kept = kept
        self._scale = Scale(allowance, stream.options.reading.deaggregate)
        self._until_ms = until_ms
        self._quiet_bound_ms = END_OF_TIME_MS
        """The latest instant (epoch ms) up to which all quiet shards are known."""
        self._listings = 0
        self._asked_for_ends: set[str] = set()
        """The closed shards that were asked for their ends in this plan."""

    # --- what is known

    @property
    def surveys(self) -> Mapping[str, Survey]:
        """The surveys of the shards that the batch may read, without quiet ones."""
        return {
            shard_id: prober.survey
            for shard_id, prober in self.active.items()
            if not prober.front.is_finished
        }

    @property
    def latest_ms(self) -> Mapping[str, int]:
        """The latest instant (epoch ms) up to which the batch may read each of the `active` shards.

        All that arrived in the shard by then is known or can be found.
        """
        return {shard_id: self._latest_ms(prober) for shard_id, prober in self.active.items()}

    def _latest_ms(self, prober: ShardProber) -> int:
        if self._until_ms is not None:
            return self._until_ms
        if prober.front.is_ended:
            return END_OF_TIME_MS
        return prober.front.asked_ms - (0 if prober.front.at_tip else SHORT_OF_TIP_MS)

    @property
    def bound_ms(self) -> int:
        """The latest instant (epoch ms) at which the batch may end.

        All that arrived in all shards by then is known or can be found. A shard's children are read
        in a later batch than its last rows, so the batch ends before the first record of such
        children.
        """
        bounds = [self._latest_ms(p) for p in (*self.active.values(), *self.children.values())]
        if self.quiet:
            bounds.append(self._quiet_bound_ms)
        for last, first in (*self._successions(), *self._waiting_children()):
            bounds.append(max(first - 1, last))
        return min(bounds, default=END_OF_TIME_MS)

    @property
    def ends_a_shard(self) -> bool:
        """True if a shard ends in the batch, and has successors with records, or unknown ones."""
        return any(True for _ in self._successions())

    def _successions(self) -> Iterator[tuple[int, int]]:
        """Yield the last arrival in shards that end, and the first one in each of their successors.

        Both in epoch ms. A successor is a child, or a child's child if the child has no records.
        Unknown children may have records from the shard's end on.
        """
        todo = [
            (shard_id, last)
            for shard_id, prober in self.active.items()
            if prober.front.is_ended
            and not prober.front.is_finished
            and (last := prober.front.hand.last_arrival) is not None
        ]
        while todo:
            shard_id, last = todo.pop()
            children = self._kept.listing.lineage.children_of_ended(shard_id)
            if children is None:
                yield last, last + 1
            for child in children or ():
                prober = self.children.get(child)
                if prober is not None and prober.front.hand.first_arrival is not None:
                    yield last, prober.front.hand.first_arrival
                elif prober is not None and prober.front.is_finished:
                    todo.append((child, last))

    def _waiting_children(self) -> Iterator[tuple[int, int]]:
        """Yield the last arrival in parents without an end, and the first one in their child.

        Both in epoch ms, 0 for a shard without records. The batch ends before that record, as the
        child enters a batch only after all of its parents.
        """
        for child, _, prober in self._parents_without_end():
            first = self.children[child].front.hand.first_arrival
            if first is not None:
                yield prober.front.hand.last_arrival or 0, first

    def _parents_without_end(self) -> Iterator[tuple[str, str, ShardProber]]:
        """Yield child, parent and the parent's prober while the parent's end is not met.

        One parent of a merge has ended, and so its child is known; the other parent has ended, too,
        but may have looked open a moment before.
        """
        for child in self.children:
            for parent in self._kept.listing.lineage.listed_parents(child):
                prober = self.active.get(parent) or self.quiet.get(parent)
                if prober is not None and not prober.front.is_ended:
                    yield child, parent, prober

    # --- the steps

    def probe(self) -> None:
        """Probe all shards of the batch, and the children of those that end in it."""
        while True:
            walked = self._walk()
            to_probe = {
                shard_id: start_of(self.start, shard_id)
                for shard_id in walked.reached
                if not self._is_probed(shard_id) and shard_id not in walked.finished
            }
            if to_probe:
                self._sort_out(self._probe_first(to_probe))
            elif walked.childless and self._may_list():
                self._listings += 1
                self._kept.listing.renew()
            else:
                ending = [s for s, prober in self.active.items() if prober.front.is_ended]
                ending += [s for s, prober in self.children.items() if prober.front.is_finished]
                lineage = self._kept.listing.lineage
                children = {c for s in ending for c in lineage.children_of_ended(s) or ()}
                new = {c for c in children - set(self.children) if not self._is_probed(c)}
                if new:
                    at_first = dict.fromkeys(sorted(new), TRIM_HORIZON)
                    self.children.update(self._probe_first(at_first, limit=1))
                elif not self._meet_ends():
                    return

    def _meet_ends(self) -> bool:
        """Ask the parents of known children for their ends, each once; False if all were asked."""
        found = {parent: prober for _, parent, prober in self._parents_without_end()}
        to_ask = {s: prober for s, prober in found.items() if s not in self._asked_for_ends}
        if not to_ask:
            return False  # the usual case: thousands of quiet shards stay quiet
        self._asked_for_ends |= to_ask.keys()
        self._for_each(to_ask, lambda shard_id: to_ask[shard_id].meet_end())
        for shard_id in to_ask.keys() & self.quiet.keys():
            del self.quiet[shard_id]
        self._sort_out(to_ask)
        return True

    def extend(self, wanted: Mapping[str, Wanted]) -> None:
        """Make the probes that a choice wants."""

        def take(shard_id: str) -> None:
            match wanted[shard_id]:
                case ReadOn(weight):
                    self.active[shard_id].read_on(weight)
                case SampleAt(instant, weight):
                    self.active[shard_id].sample(instant, weight)

        self._for_each({shard_id: self.active[shard_id] for shard_id in wanted}, take)
        self.probe()

    def confirm_instant(self, choice: Choice[str]) -> bool:
        """Find where the batch ends in each shard; return True if its instant stays.

        A closed shard may turn out to end before the instant, which lowers `bound_ms`.
        """
        lineage = self._kept.listing.lineage

        def find(shards: Iterable[str]) -> None:
            probers = {shard_id: self.active[shard_id] for shard_id in shards}
            if probers:
                self._for_each(probers, lambda shard_id: self._find_end(shard_id, choice))
                self.probe()

        # Closed shards first: their children may lower the instant.
        far = [s for s, survey in self.surveys.items() if survey.in_hand_until < choice.ends[s]]
        closed = [s for s in far if s in lineage.shards and not lineage.shards[s].is_open]
        find(closed)
        if self.bound_ms >= choice.instant:
            find(s for s in far if s not in set(closed))
        if self.bound_ms < choice.instant:
            return False
        self.ends(choice)  # also in shards that these probes have reached
        return self.bound_ms >= choice.instant

    def ends(self, choice: Choice[str]) -> dict[str, Resumption]:
        """Return the batch's end in each `active` shard; those found before cost no call."""
        return {shard_id: self._find_end(shard_id, choice) for shard_id in self.active}

    def _find_end(self, shard_id: str, choice: Choice[str]) -> Resumption:
        instant = choice.ends.get(shard_id, choice.instant)
        return self.active[shard_id].find_end(instant, choice.counts.get(shard_id))

    def assemble(self, ends: Mapping[str, EndInShard]) -> AssembledEnd:
        """Return the offset that ends the batch."""
        findings: dict[str, Finding] = {
            shard_id: NoRows(prober.front.silent_until) for shard_id, prober in self.quiet.items()
        }
        findings.update({shard_id: end.finding for shard_id, end in ends.items()})
        return assemble(self.start, self._kept.listing.lineage, self._walk(), findings)

    # --- probes

    def _is_probed(self, shard_id: str) -> bool:
        return shard_id in self.active or shard_id in self.quiet

    def _walk(self) -> Walk:
        """Return the shards that the batch may read, as far as it is known which are finished."""
        finished = frozenset(s for s, prober in self.active.items() if prober.front.is_finished)
        return self._kept.walk(self.start, finished)

    def _may_list(self) -> bool:
        """Return True if shards may be listed for children that a closed shard did not announce.

        One listing is enough while the query runs: the next batch lists again. A query that is
        about to end must find all of its shards.
        """
        if self._until_ms is None:
            return not self._listings and self._kept.listing.is_due
        return self._listings < MAX_LISTINGS

    def _probe_first(
        self, shards: Mapping[str, Position], limit: int | None = None
    ) -> Mapping[str, ShardProber]:
        """Fetch the first records of shards."""
        lineage = self._kept.listing.lineage
        if limit is None and self._scale.allowance.is_limited:
            share = self._scale.allowance.rows / len(shards)
            limit = FIRST_LIMIT if share > FIRST_LIMIT else max(SMALLEST_PROBE, math.ceil(share))
        until_ms = math.inf if self._until_ms is None else self._until_ms
        probers = {shard_id: self._prober(shard_id) for shard_id in shards}

        def probe(shard_id: str) -> None:
            # An initial start may be older than the oldest record; that is no loss.
            is_stored = shard_id in self.start or ANY_SHARD not in self.start
            check = self._stream.stored_check if is_stored else self._stream.initial_check
            prober = probers[shard_id]
            prober.probe(shards[shard_id], check, self._scale, limit, until_ms)
            if shard_id in lineage.shards and not lineage.shards[shard_id].is_open:
                prober.meet_end()

        try:
            quiet = self._probe_quiet(probers, shards, limit, probe)
            self._for_each({s: prober for s, prober in probers.items() if s not in quiet}, probe)
        except BaseException:
            for prober in probers.values():
                prober.front.forget_sent()
            raise
        return probers

    def _probe_quiet(
        self,
        probers: Mapping[str, ShardProber],
        shards: Mapping[str, Position],
        limit: int | None,
        probe: Callable[[str], None],
    ) -> Collection[str]:
        """Probe shards that stay quiet, with many requests in flight; return those shards.

        The answers of others are left to their probes, and so are all shards where there are fewer
        kept connections than half of the threads, which then open some.
        """
        in_flight: deque[str] = deque()
        quiet: set[str] = set()
        room, fewest = MOST_RECEIVED, threads_for(len(probers)) // 2

        def receive(count: int) -> None:
            # The last one first: the thread waits once, and finds the answers of the others.
            nonlocal room
            for shard_id in [in_flight.popleft() for _ in range(count)][::-1]:
                size = probers[shard_id].front.receive() if room > 0 else 0
                room -= size
                if not size and room > 0:
                    probe(shard_id)
                    quiet.add(shard_id)

        for shard_id, prober in probers.items():
            if not prober.front.may_send_ahead(shards[shard_id]):
                continue
            is_sent = prober.send_ahead(limit)
            while room > 0 and not is_sent and len(in_flight) > fewest:
                receive(len(in_flight) // 2)
                is_sent = room > 0 and prober.send_ahead(limit)
            if not is_sent:
                break
            in_flight.append(shard_id)
            if len(in_flight) == MOST_IN_FLIGHT:
                receive(MOST_IN_FLIGHT // 2)
            if room <= 0:
                break
        receive(len(in_flight))
        return quiet

    def _prober(self, shard_id: str) -> ShardProber:
        probers = self._kept.probers
        if shard_id not in probers:
            budget = self._stream.budget()
            probers[shard_id] = ShardProber(self._stream.client, shard_id, budget)
        return probers[shard_id]

    def _sort_out(self, probers: Mapping[str, ShardProber]) -> None:
        """Tell quiet shards from the others."""
        listed = self._kept.listing.lineage.shards
        for shard_id, prober in probers.items():
            shard = listed.get(shard_id)
            is_quiet = prober.front.is_quiet and shard is not None and shard.is_open
            (self.quiet if is_quiet else self.active)[shard_id] = prober
        self._quiet_bound_ms = min(
            (self._latest_ms(prober) for prober in self.quiet.values()), default=END_OF_TIME_MS
        )

    def _for_each(self, probers: Mapping[str, ShardProber], do: Callable[[str], object]) -> None:
        """Call for each shard, in parallel, and add the children that shards announce."""
        self._stream.threads.for_all(probers, do)
        for prober in list(probers.values()):
            if prober.front.children:
                self._kept.listing.announce(prober.front.children)
