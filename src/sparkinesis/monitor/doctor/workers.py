"""A worker, by what it tells of itself at ``/status``."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from sparkinesis.errors import listed
from sparkinesis.monitor.doctor.finding import Finding, note, ok, problem

_TIMEOUT = 5.0
_MOST_BYTES = 64 * 1_048_576
STANDING_AFTER = 60.0
"""Seconds without progress from which on a shard is a problem."""


def worker(url: str, application: str) -> Iterator[Finding]:
    """Ask a worker, and yield the findings about it. ``url``: the address of its option http."""
    base = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
    check = f"worker {base.partition('://')[2]}"
    if not base.startswith(("http://", "https://")):
        yield problem(check, f"{url} is no address of a worker", "Give HOST:PORT.")
        return
    try:
        with urllib.request.urlopen(f"{base}/status", timeout=_TIMEOUT) as answer:  # noqa: S310
            status = json.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError) as error:
        yield problem(
            check,
            f"{base}/status does not tell a worker's state: {error}",
            "Check the address, which the worker has by its option http, and that the worker runs.",
        )
        return
    yield from findings(check, application, status)


def findings(check: str, application: str, status: Any) -> Iterator[Finding]:
    """Yield the findings of a worker's ``/status``. Pure."""
    if not isinstance(status, dict) or "worker" not in status or "shards" not in status:
        yield problem(check, "the answer is not a worker's", "Give the option http of a worker.")
        return
    if status["application"] != application:
        yield problem(
            check,
            f"it is a worker of {status['application']!r}",
            f"Give the address of a worker of {application!r}.",
        )
        return
    found = [*_troubles(check, status), *_standing(check, status), *_lost(check, status)]
    count = len(status["shards"])
    text = f"{status['worker']} reads {count} shard{'s' * (count != 1)}, and none stands still"
    yield from found or [ok(check, text)]
    if failures := [one for one in status["failures"] if not _is_loss(one)]:
        last = failures[-1]
        yield note(
            check,
            f"different failures: {len(failures)}. The last, {last['count']} times: "
            f"{last['what']}: {last['error']}",
            "The worker's log has its traceback.",
        )


def _troubles(check: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    for why in status["not_live"]:
        yield problem(check, f"it is not live: {why}", "Start the worker again.")
    for why in status["not_ready"]:
        yield problem(check, f"it is not ready: {why}", "Once that is mended, the worker goes on.")
    if stopped := status["stopped_shards"]:
        yield problem(
            check,
            f"on_error has stopped {listed(sorted(stopped))}: {next(iter(stopped.values()))}",
            "Mend the cause, then run `sparkinesis restart`.",
        )


def _standing(check: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    for shard in status["shards"]:
        seconds = shard.get("standing_for") or 0.0
        if seconds >= STANDING_AFTER:
            yield problem(
                check,
                f"{shard['lease']} stands still for {seconds:,.0f} s: {shard['standing_because']}",
                "Look for the error in the worker's log, and let calls to other systems time out: "
                'see the runbook "A shard stands still".',
            )


def _lost(check: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    for one in filter(_is_loss, status["failures"]):
        yield problem(
            check,
            f"records were lost unread on {listed(one['shard_ids'])}, {one['count']} times; the "
            f"last: {one['error'].partition(': ')[2]}",
            "They cannot be read any more. A longer retention period of the stream gives more time "
            "for the next ones.",
        )


def _is_loss(failure: Mapping[str, Any]) -> bool:
    return str(failure["error"]).startswith("DataLossError: ")
