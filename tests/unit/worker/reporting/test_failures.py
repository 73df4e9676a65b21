"""What is one failure, and how failures are counted, bounded and merged."""

from __future__ import annotations

import builtins
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.status import Failure
from sparkinesis.worker.reporting.failures import (
    MAX_ERROR,
    MAX_FAILURES,
    MAX_SHARDS,
    MAX_TRACEBACK,
    Failures,
    describe,
    fingerprint,
    merge,
)


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("it should have raised")


def here(error: BaseException) -> None:
    raise error


def there(error: BaseException) -> None:
    raise error


def by(line: int) -> BaseException:
    """An error that is raised at the given line of a function of its own."""
    code = compile("\n" * (line - 1) + "raise ValueError(1)", "/a/processor.py", "exec")
    return raised(lambda: exec(code))


def because(cause: BaseException | None, *, hide: bool = False) -> BaseException:
    def call() -> None:
        try:
            if cause is not None:
                raise cause
        except BaseException:  # noqa: BLE001
            if hide:
                raise ValueError("follows") from None
            raise ValueError("follows")  # noqa: B904 - the context is meant
        raise ValueError("follows")

    return raised(call)


def test_the_message_makes_no_other_failure() -> None:
    errors = [raised(lambda: here(ValueError(f"record {n}"))) for n in range(3)]  # noqa: B023
    assert len({fingerprint(error) for error in errors}) == 1
    assert len(fingerprint(errors[0])) == 12
    assert int(fingerprint(errors[0]), 16) >= 0


def test_the_type_does_and_so_does_the_line() -> None:
    class ValueError(Exception):  # noqa: A001 - of the same name, in another place
        pass

    marks = [
        fingerprint(error)
        for error in (
            raised(lambda: here(KeyError("a"))),
            raised(lambda: there(KeyError("a"))),
            raised(lambda: here(IndexError("a"))),
            KeyError("a"),
            ValueError("a"),
            by(1),
            by(2),
        )
    ]
    assert len(set(marks)) == len(marks)
    assert fingerprint(by(2)) == marks[-1]


def test_the_folder_of_a_file_does_not() -> None:
    """The same code is unpacked into another one on each machine."""
    first, second = (
        raised(lambda: exec(compile("1/0", f"/{folder}/processor.py", "exec")))  # noqa: B023
        for folder in ("a", "b")
    )
    assert fingerprint(first) == fingerprint(second)
    other = raised(lambda: exec(compile("1/0", "/a/other.py", "exec")))
    assert fingerprint(other) != fingerprint(first)


def test_what_it_came_from_counts_as_far_as_a_traceback_shows_it() -> None:
    marks = {
        name: fingerprint(error)
        for name, error in {
            "key": because(KeyError(1)),
            "other key": because(KeyError(2)),
            "index": because(IndexError(1)),
            "hidden key": because(KeyError(1), hide=True),
            "hidden index": because(IndexError(1), hide=True),
        }.items()
    }
    assert marks["key"] == marks["other key"] != marks["index"]
    assert marks["hidden key"] == marks["hidden index"]

    def explicit(cause: BaseException) -> None:
        raise ValueError("follows") from cause

    causes = [raised(lambda: explicit(each)) for each in (KeyError(1), OSError())]  # noqa: B023
    assert fingerprint(causes[0]) != fingerprint(causes[1])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with Python 3.11")
def test_a_group_is_what_is_in_it() -> None:
    kind: Any = getattr(builtins, "ExceptionGroup", None)

    def group(*errors: Exception) -> str:
        return fingerprint(raised(lambda: here(kind("several", errors))))

    assert group(KeyError(1)) == group(KeyError(2), KeyError(3)) != group(OSError())


def test_a_recursion_is_one_failure_at_any_depth() -> None:
    def dig(depth: int) -> int:
        return dig(depth - 1) if depth else 1 // 0

    marks = [fingerprint(raised(lambda: dig(depth))) for depth in (3, 30, 300)]  # noqa: B023
    assert len(set(marks)) == 1

    def endless() -> None:
        endless()

    assert fingerprint(raised(endless)) == fingerprint(raised(endless))
    error = ValueError("made once, and raised again and again")
    assert len({fingerprint(raised(lambda: here(error))) for _ in range(3)}) == 1


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError(1), ValueError(2)
    first.__cause__, second.__cause__ = second, first
    assert fingerprint(first) == fingerprint(second)


def test_counts_shards_and_the_last_words_of_each_failure() -> None:
    times = iter(range(10, 20))
    failures = Failures(lambda: next(times))
    errors = [raised(lambda: here(ValueError(f"record {n}"))) for n in range(3)]  # noqa: B023
    other = raised(lambda: there(ValueError("")))
    first = failures.note("s1", "what 0", errors[0])
    assert (first.count, first.shard_ids) == (1, ("s1",))
    assert first.traceback == "".join(traceback.format_exception(errors[0]))
    failures.note(None, "worker", other)
    failures.note("s2", "what 1", errors[1])
    failures.note("s1", "what 2", errors[2])
    last, now = failures.snapshot()
    assert last == Failure(
        fingerprint(other), "worker", "ValueError", last.traceback, 1, (), 11, 11
    )
    assert now == replace(
        first,
        what="what 2",
        error="ValueError: record 2",
        count=3,
        shard_ids=("s1", "s2"),
        first_ms=10,
        last_ms=13,
    )
    assert pickle.loads(pickle.dumps(now)) == now


def test_the_failure_not_seen_for_longest_makes_room() -> None:
    failures = Failures()
    errors = [by(line) for line in range(1, MAX_FAILURES + 2)]
    for error in errors[:-1]:
        failures.note("s", "what", error)
    failures.note("s", "what", errors[0])
    failures.note("s", "what", errors[-1])
    kept = [failure.fingerprint for failure in failures.snapshot()]
    order = [*errors[2:-1], errors[0], errors[-1]]
    assert kept == [fingerprint(error) for error in order]
    assert failures.snapshot()[-2].count == 2


def test_texts_and_shards_are_bounded() -> None:
    failures = Failures()
    for n in range(MAX_SHARDS + 3):
        failures.note(f"s{n}", "what" * 500, raised(lambda: here(ValueError("ab" * 9_000))))
    (failure,) = failures.snapshot()
    assert failure.shard_ids == tuple(f"s{n}" for n in range(MAX_SHARDS))
    assert len(failure.what) <= MAX_ERROR
    assert len(failure.error) <= MAX_ERROR
    assert failure.error.startswith("ValueError: abab")
    assert len(failure.traceback) <= MAX_TRACEBACK
    assert failure.traceback.startswith("Traceback (most recent call last)")
    assert " [...] " in failure.traceback
    assert failure.traceback.endswith("ab\n")


def test_an_error_that_cannot_tell_its_message_is_a_failure_as_any_other() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    failures = Failures()
    failure = failures.note("s", "what", raised(lambda: here(MuteError())))
    assert failure.error == "MuteError: <its message could not be made>"
    assert "in here" in failure.traceback
    assert describe(KeyError()) == "KeyError"


def test_no_local_variable_is_told() -> None:
    def sign(secret: str) -> None:
        raise ValueError("refused")

    failure = Failures().note("s", "what", raised(lambda: sign("hush" + str(3 * 37))))
    assert "hush111" not in repr(failure)


def test_a_traceback_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads source files: not for each record."""
    made: list[object] = []
    real = traceback.format_exception

    def count(*given: Any) -> list[str]:
        made.append(given)
        return real(*given)

    monkeypatch.setattr(traceback, "format_exception", count)
    failures = Failures()
    for n in range(10):
        failures.note("s", "what", raised(lambda: here(ValueError(n))))  # noqa: B023
    assert len(made) == 1


def test_no_error_is_lost_among_threads() -> None:
    failures = Failures()
    barrier = threading.Barrier(4)
    firsts: list[int] = []

    def note(shard: str) -> None:
        barrier.wait()
        for n in range(500):
            error = raised(lambda: here(ValueError(n)))  # noqa: B023
            if failures.note(shard, "what", error).count == 1:
                firsts.append(n)

    threads = [threading.Thread(target=note, args=(f"s{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (failure,) = failures.snapshot()
    assert failure.count == 2000
    assert set(failure.shard_ids) == {"s0", "s1", "s2", "s3"}
    assert len(firsts) == 1


def a(mark: str, count: int, *shards: str, text: str = "t") -> Failure:
    return Failure(mark, f"what {text}", f"error {text}", f"traceback {text}", count, shards)


def test_merging_adds_up_and_keeps_the_first_traceback_and_the_last_words() -> None:
    one = [a("x", 2, "s1", "s2", text="1"), a("y", 1)]
    two = [a("z", 5), a("x", 3, "s2", "s3", text="2")]
    merged = merge([one, two])
    assert [failure.fingerprint for failure in merged] == ["y", "z", "x"]
    assert merged[-1] == Failure("x", "what 2", "error 2", "traceback 1", 5, ("s1", "s2", "s3"))
    assert merge([merge([one]), merge([two])]) == merged
    assert merge([]) == ()
    times = [[replace(a("x", 1), first_ms=at, last_ms=at + 5)] for at in (20, 10)]
    assert [(one.first_ms, one.last_ms) for one in merge(times)] == [(10, 25)]
    groups = [[a("x", 1, *(f"{worker}-{n}" for n in range(5)))] for worker in "ab"]
    (failure,) = merge(groups)
    assert failure.shard_ids == ("a-0", "a-1", "a-2", "a-3", "a-4", "b-0", "b-1", "b-2")
