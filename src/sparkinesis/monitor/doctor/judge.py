"""The findings of the doctor, and the meaning of facts: clocks, versions, capacity. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum

import msgspec

from sparkinesis.errors import SparkinesisError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.fan_out.registered_consumers import MOST_CONSUMERS

_SENTENCE = re.compile(r"(?<=[.:;]) (?=[A-Z])")


class State(Enum):
    """The weight of a finding."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; workers run all the same."""
    PROBLEM = "problem"
    """Workers cannot run, or not as they should."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    """The thing that was checked, in a word or two."""
    state: State
    what: str
    mend: str = ""
    """What to do about it; empty if there is nothing to do."""


def ok(check: str, what: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(check, State.OK, what)


def note(check: str, what: str, mend: str = "") -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(check, State.NOTE, what, mend)


def problem(check: str, what: str, mend: str) -> Finding:
    """Return a finding that keeps workers from running."""
    return Finding(check, State.PROBLEM, what, mend)


def problem_of(check: str, error: SparkinesisError) -> Finding:
    """Return the finding of an error, whose text says what happened, and then what to do."""
    what, *rest = _SENTENCE.split(str(error), maxsplit=1)
    return problem(check, what, *rest) if rest else problem(check, what, "")


def is_well(findings: Iterable[Finding]) -> bool:
    """Return True if there is no problem."""
    return all(one.state is not State.PROBLEM for one in findings)


REFUSED_AFTER = 300.0
"""Seconds by which a clock may differ from AWS's before signatures are refused."""
_NOTED_AFTER = 5.0
_WARNED_AFTER = 240.0

OLDEST_PYSPARK = (4, 2)
OLDEST_JAVA = 17

RENEWALS_EVERY = 10.0 / 3
"""Seconds between two renewals of a lease, with the default failover_time of 10 s."""


def clock(ahead: float) -> Finding:
    """Judge a clock by the seconds that it is ahead of the service's (negative: behind)."""
    size, side = abs(ahead), "ahead of" if ahead > 0 else "behind"
    if size <= _NOTED_AFTER:
        return ok("clock", "agrees with the service's clock")
    what = f"this machine's clock is {size:,.0f} s {side} the service's"
    mend = "Set the clock by NTP (chrony, systemd-timesyncd)."
    if size < _WARNED_AFTER:
        return note("clock", what, mend)
    return problem(
        "clock",
        what,
        f"{mend} AWS refuses requests whose time differs by {REFUSED_AFTER / 60:.0f} minutes.",
    )


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 2, 0) of "4.2.0.dev1"."""
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def spark(pyspark: str | None, java: int | None) -> Finding:
    """Judge what a fleet or a Spark query needs; None: it is not installed.

    java: the feature version, such as 17; 0 if it is unknown.
    """
    if pyspark is None:
        return note("Spark", "pyspark is not installed: needed only for queries and fleets")
    if numbers(pyspark) < OLDEST_PYSPARK:
        return problem(
            "Spark",
            f"pyspark {pyspark} is too old",
            'Install PySpark 4.2 or newer: pip install "sparkinesis[spark]".',
        )
    if java is None:
        return note(
            "Spark",
            f"pyspark {pyspark}; no Java was found",
            "Spark's driver needs Java 17 or newer: set JAVA_HOME, or install the extra local, "
            "which has one.",
        )
    if 0 < java < OLDEST_JAVA:
        return problem(
            "Spark",
            f"pyspark {pyspark} needs Java 17 or newer, and this machine's is Java {java}",
            "Set JAVA_HOME to a newer Java.",
        )
    return ok("Spark", f"pyspark {pyspark}, Java {java or 'of an unknown version'}")


def key_schema(name: str, attributes: Collection[tuple[str, str, str]]) -> Finding | None:
    """Judge the key of a table; None: it is that of a lease table.

    attributes: the name, the key type (HASH, RANGE) and the type (S, N, B) of each.
    """
    if set(attributes) == {("leaseKey", "HASH", "S")}:
        return None
    shown = ", ".join(sorted(f"{key} ({kind} {form})" for key, kind, form in attributes))
    return problem(
        "table",
        f"the table {name!r} is no lease table: its key is {shown}, not leaseKey (HASH S)",
        "Choose another application name or table_name: workers refuse a table that is not "
        "theirs, and write nothing to it.",
    )


def leases(table: str, rows: Collection[Lease]) -> Iterator[Finding]:
    """Judge the leases of a table: whether there are any, and whether their shards are read."""
    unfinished = [lease for lease in rows if not lease.is_finished]
    owners = {lease.owner for lease in unfinished if lease.owner}
    text = f"{table}: {counted(len(rows), 'lease')}, {len(unfinished)} not finished, "
    text += counted(len(owners), "owner")
    if not rows:
        yield note(
            "table",
            text,
            "The first worker creates the leases when it starts. If one runs, its log and /readyz "
            "say what keeps it from that.",
        )
    elif unfinished and not owners:
        yield note("table", text, "No worker holds a lease: nobody reads the streams now.")
    else:
        yield ok("table", text)
    if stopped := [one.key for one in unfinished if one.stopped_by and not one.owner]:
        is_one = len(stopped) == 1
        yield problem(
            "shards",
            f"{counted(len(stopped), 'shard')} {'is' if is_one else 'are'} stopped by on_error, "
            f"and read by nobody: {listed(sorted(stopped))}",
            "The workers' logs say which record failed, and why. Mend that, then run `sparkinesis "
            "restart`.",
        )


LATE_MS = 60_000
"""The age of the first record behind a checkpoint that makes the doctor scan twice."""


def lost(shard: str, what: str) -> Finding:
    """Judge a shard whose records have expired unread behind its checkpoint."""
    return problem(
        "lost records",
        f"{shard}: {what}",
        "A worker goes on with what is left, and tells the loss (DataLost). The other findings and "
        "the workers' logs say why nobody read in time; a longer retention period of the stream "
        "gives more time.",
    )


def standing(
    late: Mapping[str, int], before: Collection[Lease], after: Collection[Lease]
) -> Finding | None:
    """Judge shards whose first record behind the checkpoint is old; None: all make progress.

    late: the ages in milliseconds, by lease key. before, after: two scans of the table.
    """
    places = {one.key: one.checkpoint for one in before}
    still = sorted(
        one.key
        for one in after
        if one.key in late and one.owner is not None and one.checkpoint == places.get(one.key)
    )
    if not still:
        return None
    each = listed(f"{key} (its first record is {late[key] / 1000:,.0f} s old)" for key in still)
    return note(
        "progress",
        f"these checkpoints did not move between two looks: {each}",
        "A worker makes no progress there, or checkpoints rarely. `--worker URL`, with the address "
        'of its option http, asks it; see the runbook "A shard stands still".',
    )


def capacity(units: int | None, count: int) -> Finding:
    """Judge the capacity of a table of ``count`` leases.

    ``units``: the writes a second; None: on demand.
    """
    if units is None:
        return ok("capacity", "the table is billed on demand")
    needed = count / RENEWALS_EVERY
    what = f"the table has {units} write units a second, and renewing {count} leases takes "
    what += f"about {needed:.1f}"
    if units >= needed:
        return ok("capacity", what)
    return problem(
        "capacity",
        what,
        "Leases that are not renewed in time move between workers: raise the table's write "
        "capacity, or change it to on demand (PAY_PER_REQUEST).",
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shards(
    stream: str, of_stream: Collection[str], of_table: Collection[str], others: Collection[str] = ()
) -> Finding | None:
    """Judge whether the leases are of this stream; None: they are, or there are none.

    of_stream, of_table: the ids of shards that the stream has, and of its leases not finished.
    others: the streams that the leases name.
    """
    if others and not of_table:
        return note(
            "leases",
            f"the leases are of {listed(sorted(others))}, and none of {stream}",
            "The application does not read the stream, or has not begun to: check --stream.",
        )
    strange = sorted(set(of_table) - set(of_stream))
    if not strange:
        return None
    if len(strange) < len(set(of_table)):
        return problem(
            "leases",
            f"{counted(len(strange), 'unfinished lease')} of {len(set(of_table))}, such as "
            f"{strange[0]}, {'is' if len(strange) == 1 else 'are'} of no shard of {stream}",
            "The shards have expired, and what was not read of them is lost: a worker that reads "
            "one says so, and finishes its lease. Or --stream is not the application's: streams "
            "have shards of the same ids.",
        )
    return problem(
        "leases",
        f"none of the {len(of_table)} unfinished leases is of a shard of {stream}",
        "The application reads another stream, or the stream was deleted and made anew. Check "
        "--stream and APP; to read a new stream with the same application, stop its workers and "
        "delete its lease table.",
    )


def limit(what: str, used: int, most: int) -> Finding:
    """Judge how much of a limit of the account is used."""
    text = f"{used:,} of {most:,} {what}"
    if most <= 0 or used < 0.9 * most:
        return ok("limits", text)
    return note("limits", text, "Ask AWS for a higher quota (Service Quotas) before you need more.")


def consumers(name: str, others: int) -> Finding:
    """Judge whether a consumer of this name can be registered. ``others``: the number of others."""
    if others < MOST_CONSUMERS:
        return note(
            "consumer",
            f'there is no consumer {name}: a worker with retrieval="efo" registers it',
        )
    return problem(
        "consumer",
        f"there is no consumer {name}, and the stream has {others} others; it may have "
        f"{MOST_CONSUMERS}",
        "Deregister one that is not used, share one by consumer_arn, or read by polling.",
    )
