"""Deliberate bugs that show when an application was away, each as a patch of one name."""

from __future__ import annotations

from typing import Any

from sparkinesis.lease import shard_syncer, stream_leases
from sparkinesis.lease.rules import children
from sparkinesis.lease.rules.lease_start import LeaseStart, WantedRecords
from sparkinesis.stream.position import LATEST
from sparkinesis.stream.reading import retention
from sparkinesis.worker.lifecycle.shard import starting
from tests.simulation.patches import always
from tests.simulation.subject import Bug, instead


def _latest_is_now(lease_start: Any) -> Any:
    """LATEST means the time of each start, like in the Java KCL."""

    def now(leases: Any, shards: Any, initial: Any, now_ms: int) -> Any:
        if initial is LATEST:
            return LeaseStart(initial, now_ms, None, now_ms, is_now=True)
        return lease_start(leases, shards, initial, now_ms)

    return now


AWAY_BUGS: dict[str, Bug] = {
    "shards without an ancestor begin at the latest record": instead(
        stream_leases, "lease_start", _latest_is_now, "leases_begin_where_they_should", 1
    ),
    "the other parent of a merge is left out": instead(
        children, "_unread_leases", always([]), "everything_is_processed", 1
    ),
    "records that expired before the first one are not checked for": instead(
        starting, "wanted_records", always(WantedRecords()), "readers_resume_where_they_should", 5
    ),
    "finished leases are deleted before an audit has filled the holes": instead(
        shard_syncer, "audit_needs_them", always(False), "leases_are_deleted_in_time", 7
    ),
    "the present retention period is trusted": instead(
        retention,
        "has_lost",
        lambda _: retention.may_have_lost,
        "readers_resume_where_they_should",
        2,
    ),
}
