"""The rows by which workers coordinate themselves: load, leader's lock and mode of a fleet."""

from __future__ import annotations

from typing import Any

from sparkinesis.lease.assignment import coordinator_state
from sparkinesis.lease.assignment.coordination import seen_in
from sparkinesis.lease.assignment.coordinator_state import (
    LeaderLock,
    VersionRow,
    decode_lock,
    decode_version,
    encode_lock,
    encode_version,
    missing_row,
)
from sparkinesis.lease.assignment.worker_stats import (
    CPU,
    SINGLE_TABLE,
    WorkerStats,
    decode_stats,
    encode_stats,
    with_sample,
)
from tests.release.formats.offsets import INSTANT

_SECOND = INSTANT // 1000


def _stats(beside: bool) -> WorkerStats:
    samples = with_sample(with_sample({}, CPU, 12.3456789), CPU, None)
    code = None if beside else SINGLE_TABLE
    return WorkerStats("worker-1", _SECOND, samples, {CPU: 100}, code, code and _SECOND)


def _mode() -> VersionRow:
    row = missing_row(None, "worker-1", INSTANT, by_load=True)
    assert row is not None
    return row


_LOCK = coordinator_state.new_lock("worker-1", 10.0, "f4bc4850-5b31-4de2-98a8-86ba7c423730")


def write() -> dict[str, Any]:
    """Return rows, by a name of each: among the leases, and in the tables of a KCL 3.0 to 3.4."""
    released = LeaderLock(_LOCK.owner, _LOCK.duration_ms, _LOCK.version, is_released=True)
    mode, lock = coordinator_state.VERSION_KEY, coordinator_state.LOCK_KEY
    return {
        "the load of a worker": _row("leaseKey", "worker-1", encode_stats(_stats(beside=False))),
        "the load of a worker, beside the leases": _row(
            "wid", "worker-1", encode_stats(_stats(beside=True))
        ),
        "the lock of the leader": _row("leaseKey", lock, encode_lock(_LOCK)),
        "the lock of the leader, beside the leases": _row("key", lock, encode_lock(_LOCK)),
        "the lock that its leader has released": _row("leaseKey", lock, encode_lock(released)),
        "the mode of the fleet": _row("leaseKey", mode, encode_version(_mode())),
        "the mode of the fleet, beside the leases": _row("key", mode, encode_version(_mode())),
    }


def read(item: Any) -> dict[str, Any]:
    """Return the meaning of a row."""
    key = next(name for name in ("leaseKey", "wid", "key") if name in item)
    if key == "leaseKey":
        seen = seen_in([item])
        stats, lock, mode = (*seen.stats, None)[0], seen.lock, seen.version
    else:
        stats, lock, mode = decode_stats(item, key), decode_lock(item, key), None
        mode = decode_version(item, key)
    found: dict[str, Any] = {}
    if stats is not None:
        found["load"] = {
            "worker": stats.worker_id,
            "updated_s": stats.updated_s,
            "averages": {name: list(values) for name, values in stats.samples.items()},
            "limits": dict(stats.limits),
            "support_code": stats.support_code,
            "support_updated_s": stats.support_updated_s,
        }
    if lock is not None:
        found["lock"] = {
            "owner": lock.owner,
            "duration_ms": lock.duration_ms,
            "version": lock.version,
            "is_released": lock.is_released,
        }
    if mode is not None:
        found["modes"] = [[one.name, one.by, one.at_ms] for one in (mode.now, *mode.earlier)]
    return found


def _row(key: str, value: str, attributes: Any) -> dict[str, Any]:
    return {key: {"S": value}, **attributes}
