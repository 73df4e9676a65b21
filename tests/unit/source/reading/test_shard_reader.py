"""Freed memory stays with the process, and the machine's processes share a shard's budget (P7).

Each in Pythons of their own.
"""

from __future__ import annotations

import itertools
import os
import platform
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparkinesis.source.reading import shard_reader
from sparkinesis.source.reading.shard_reader import SLOTS, keep_freed_memory, machine_budget_state
from sparkinesis.stream.address import CredentialSource, StreamAddress
from sparkinesis.stream.reading.budget import BudgetState, CallBudget, LocalBudgetState, Pace

ROUNDS = 20
BLOCKS = 4
SIZE = 12_000_000
EACH_FAULTS = BLOCKS * SIZE // 4096 * (ROUNDS - 1)
"""The page faults of all rounds but the first, if each fetches its memory anew."""

PROGRAM = f"""
import resource, sys
from sparkinesis.source.reading.shard_reader import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
for number in range({ROUNDS}):
    blocks = [b"x" * {SIZE} for _ in range({BLOCKS})]
    del blocks
    if number == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc only")


def faults(how: str, **environment: str) -> tuple[bool, int]:
    """Whether memory is kept, and the page faults of all rounds but the first."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")}
    own.pop("GLIBC_TUNABLES", None)
    command = [sys.executable, "-c", PROGRAM, how]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**own, **environment}
    ).stdout.split()
    return said[0] == "True", int(said[1])


def test_freed_pages_are_not_fetched_anew() -> None:
    # Less than all of them where the system gives memory in larger pages, too.
    assert faults("leave")[1] > EACH_FAULTS // 5
    kept, count = faults("keep")
    assert kept
    assert count < EACH_FAULTS // 20


def test_the_users_own_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, count = faults("keep", MALLOC_TRIM_THRESHOLD_="131072")
    assert not kept
    assert count > EACH_FAULTS // 2
    for name in ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "glibc.malloc.trim_threshold=131072")
            assert not keep_freed_memory.__wrapped__()


ADDRESS = StreamAddress("s", region="us-east-1")
SHARD = "shardId-000000000007"

CALLER = """
import sys, time
from pathlib import Path
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.reading.budget import CallBudget, Pace
from sparkinesis.source.reading.shard_reader import machine_budget_state

address = StreamAddress("s", region="us-east-1")
looked = []

def clock():
    looked.append(time.monotonic())
    return looked[-1]

budget = CallBudget(
    Pace(calls_per_second=10.0),
    lambda: machine_budget_state(address, "shardId-000000000007", "reads", Path(sys.argv[1])),
    clock,
)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    with budget:
        print(repr(looked[-1]), flush=True)  # the instant at which the turn was taken
"""


def state_in(parent: Path, shard_id: str = SHARD, address: StreamAddress = ADDRESS) -> BudgetState:
    return machine_budget_state(address, shard_id, "reads", parent)


def set_to(slot: BudgetState, instant: float) -> None:
    with slot:
        slot.free_at = instant


def value_of(slot: BudgetState) -> float:
    with slot:
        return slot.free_at


def test_p7_two_processes_take_turns(tmp_path: Path) -> None:
    callers = [
        subprocess.Popen(
            [sys.executable, "-c", CALLER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for caller in callers:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
    for caller in callers:
        assert caller.stdin is not None
        caller.stdin.write("\n")
        caller.stdin.flush()
    told = [caller.communicate(timeout=60)[0].split() for caller in callers]
    assert [len(lines) for lines in told] == [10, 10]
    made = sorted(float(line) for lines in told for line in lines)
    gaps = [later - earlier for earlier, later in itertools.pairwise(made)]
    assert min(gaps) > 0.1 - 1e-6


def test_shards_streams_and_accounts_have_slots_of_their_own(tmp_path: Path) -> None:
    now = time.monotonic()
    set_to(state_in(tmp_path), now)
    others = [
        state_in(tmp_path, "shardId-000000000008"),
        state_in(tmp_path, "another"),
        state_in(tmp_path, address=StreamAddress("t", region="us-east-1")),
        state_in(tmp_path, address=StreamAddress("s", region="eu-west-1")),
        state_in(
            tmp_path,
            address=StreamAddress(
                "s",
                region="us-east-1",
                credentials=CredentialSource(role_arn="arn:aws:iam::1:role/x"),
            ),
        ),
        machine_budget_state(ADDRESS, SHARD, "writes", tmp_path),
    ]
    assert all(value_of(other) < now for other in others)
    assert value_of(state_in(tmp_path)) == now


def test_shards_that_are_numbered_in_a_row_do_not_share(tmp_path: Path) -> None:
    made = [state_in(tmp_path, f"shardId-{number:012d}") for number in range(300)]
    for number, slot in enumerate(made):
        set_to(slot, float(number))
    for number in range(300):
        assert value_of(state_in(tmp_path, f"shardId-{number:012d}")) == number
    (directory,) = tmp_path.iterdir()
    (file,) = directory.iterdir()
    assert file.stat().st_size <= SLOTS * 8
    assert directory.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_names_neither_stream_nor_account(tmp_path: Path) -> None:
    source = CredentialSource("my-profile", "arn:aws:iam::1:role/x", "an-external-id")
    set_to(state_in(tmp_path, address=StreamAddress("my-stream", credentials=source)), 1.0)
    (file,) = next(tmp_path.iterdir()).iterdir()
    assert len(file.name) == 32
    assert set(file.name) <= set("0123456789abcdef")
    assert set(file.read_bytes().strip(b"\0")) <= set(struct.pack("=d", 1.0))


def test_what_is_in_the_file_may_be_anything(tmp_path: Path) -> None:
    set_to(state_in(tmp_path), 1.0)
    (file,) = next(tmp_path.iterdir()).iterdir()
    for value in (float("nan"), float("inf"), 1e300, float("-inf")):
        file.write_bytes(struct.pack("=d", value) * 8)
        budget = CallBudget(Pace(calls_per_second=1000.0), lambda: state_in(tmp_path))
        before = time.monotonic()
        with budget:
            pass
        assert time.monotonic() - before < 30
        assert before < value_of(state_in(tmp_path)) < time.monotonic() + 1


def test_p7_a_file_that_is_lost_leaves_the_process_its_own_spacing(tmp_path: Path) -> None:
    slot = state_in(tmp_path)
    now = time.monotonic()
    set_to(slot, now)
    (file,) = next(tmp_path.iterdir()).iterdir()
    os.truncate(file, 0)
    assert value_of(slot) == now
    assert value_of(state_in(tmp_path)) < now


def open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def a_link(path: Path) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    path.symlink_to(elsewhere)


def a_file(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize("make", [open_to_others, a_link, a_file])
def test_a_directory_that_others_may_reach_is_not_used(tmp_path: Path, make: object) -> None:
    assert callable(make)
    path = tmp_path / f"sparkinesis-budgets-{os.getuid()}"
    make(path)
    assert isinstance(state_in(tmp_path), LocalBudgetState)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file != path]


def test_somebody_elses_directory_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.getuid() + 1
    (tmp_path / f"sparkinesis-budgets-{uid}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert isinstance(state_in(tmp_path), LocalBudgetState)


def test_without_directory_or_file_locks_each_process_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(state_in(tmp_path / "missing"), LocalBudgetState)
    monkeypatch.setattr(shard_reader, "HAS_FILE_LOCKS", False)
    assert isinstance(state_in(tmp_path), LocalBudgetState)
    assert not list(tmp_path.iterdir())
