"""Has readers that others wrote open what ``sparkinesis put --aggregate`` wrote: what differs?

Spark's sink writes the same aggregates, by the same code. Needs Node.js, a JDK and Maven for the
readers in these languages, and leaves out, with a sentence, those that cannot be had here. Exits
with 1 if a reader differs in another way than is known of it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkinesis.local import LocalServer
from tests.command import COMMAND, place_of
from tests.interop.producers.installing import command_of
from tests.interop.producers.known import Given, given, marks
from tests.interop.producers.programs import AGG, Program
from tests.interop.report import print_table
from tests.interop.servers import MissingToolError
from tests.streams import active_shards, records_of

_HEADING = (
    "reader",
    "records",
    "stored",
    "put",
    "read",
    "lost",
    "out of order",
    "relabelled",
    "other hash keys",
)

User = tuple[str, str | None, bytes]
"""Partition key, explicit hash key, data."""

READERS = (
    Program("aws-kinesis-agg 1.2.3", "Python", "read_aws_kinesis_agg.py", requirements=AGG),
    Program("npm aws-kinesis-agg 4.2.8", "Node", "read-aws-kinesis-agg.mjs"),
    Program("Java KCL 3.5.1", "Java", "kcl"),
)
MIXED = "some with an explicit hash key"
PLAIN = "no explicit hash key"
KNOWN = {(name, MIXED) for name in ("aws-kinesis-agg 1.2.3", "npm aws-kinesis-agg 4.2.8")}
"""The readers that give a record without an explicit hash key another one's."""


@dataclass(frozen=True)
class Stored:
    """A stored record, with the hash keys of its shard."""

    record: Mapping[str, Any]
    first: str
    last: str

    def line(self) -> str:
        """The line of JSON by which a program is told of it."""
        data = base64.b64encode(self.record["Data"]).decode()
        names = ("SequenceNumber", "PartitionKey")
        told = {name: self.record[name] for name in names}
        return json.dumps({**told, "Data": data, "First": self.first, "Last": self.last})


def written(server: LocalServer, stream: str, users: Iterable[User]) -> list[Stored]:
    """Put user records by the command, and return what the stream stores."""
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    lines = [
        json.dumps({"partition_key": key, "explicit_hash_key": place, "data": data.decode()})
        for key, place, data in users
    ]
    subprocess.run(
        [COMMAND, "put", stream, "--json", "--aggregate", *place_of(server)],
        input="\n".join(lines),
        text=True,
        check=True,
    )
    found = []
    for shard in active_shards(kinesis, stream):
        keys = shard["HashKeyRange"]
        found += [
            Stored(record, keys["StartingHashKey"], keys["EndingHashKey"])
            for record in records_of(kinesis, stream, shard["ShardId"])
        ]
    return found


def read(command: Sequence[str], stored: Iterable[Stored]) -> list[User]:
    """Return the user records that a program makes of stored ones."""
    done = subprocess.run(
        command,
        input="\n".join(one.line() for one in stored),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [(one["key"], one["hash_key"], base64.b64decode(one["data"])) for one in found]


def differences(put: Sequence[User], found: Sequence[User]) -> tuple[int, int, int, int]:
    """Count what is lost, out of order, relabelled, and read with another explicit hash key."""
    places = {data: (key, place) for key, place, data in put}
    counts = Counter(data for *_, data in found)
    lost = sum(not counts[data] for data in places)
    last: defaultdict[str, int] = defaultdict(lambda: -1)
    late = relabelled = moved = 0
    for key, place, data in found:
        ((of, number),) = marks(data)
        late += number <= last[of]
        last[of] = max(last[of], number)
        relabelled += key != places[data][0]
        moved += place != places[data][1]
    return lost, late, relabelled, moved


def _mixed(users: Iterable[Given]) -> list[User]:
    """Every second key has an explicit hash key, which is its own in each of its records."""
    places = {"ann": "0", "2": str(2**128 - 1), "000123": "7"}
    return [(one.key, places.get(one.key), one.data) for one in users]


def main() -> int:
    users = given(size=300)
    plays: dict[str, list[User]] = {
        PLAIN: [(one.key, None, one.data) for one in users],
        MIXED: _mixed(users),
    }
    rows: list[Sequence[str]] = [_HEADING]
    wrong: list[str] = []
    with LocalServer(limits=None) as server:
        stored = {
            name: written(server, f"s{number}", each)
            for number, (name, each) in enumerate(plays.items())
        }
    for reader in READERS:
        try:
            command = command_of(reader)
        except MissingToolError as error:
            print(f"{reader.name} is left out: {error}", flush=True)
            continue
        for name, put in plays.items():
            found = read(command, stored[name])
            figures = differences(put, found)
            cells = (len(stored[name]), len(put), len(found), *figures)
            rows.append((reader.name, name, *(f"{cell:,}" for cell in cells)))
            *must_be_none, moved = figures
            if any(must_be_none) or len(found) != len(put):
                wrong.append(f"{reader.name}, {name}: {figures}")
            elif bool(moved) is not ((reader.name, name) in KNOWN):
                wrong.append(f"{reader.name}, {name}: {moved} other hash keys")
    print_table(rows, 2)
    print(*wrong, sep="\n")
    return 1 if wrong else 0 if len(rows) > 1 else 2


if __name__ == "__main__":
    sys.exit(main())
