"""The least token of an acquisition: the service's second, and digits that keep two apart."""

from __future__ import annotations

import random

from sparkinesis.lease.lease import MOST_TOKEN
from sparkinesis.lease.table.fencing import may_be_by, next_token, token_at

SECOND = 1_790_000_000


def test_a_later_second_has_larger_tokens_whatever_the_digits_below_it() -> None:
    rng = random.Random(1)
    first = [token_at(SECOND, rng) for _ in range(1000)]
    assert max(first) < min(token_at(SECOND + 1, rng) for _ in range(1000))
    assert len(set(first)) > 995
    assert {token // 1_000_000 for token in first} == {SECOND}


def test_without_a_time_only_the_row_makes_tokens_grow() -> None:
    assert token_at(None, random.Random(1)) == 1


def test_a_token_is_positive_and_has_at_most_64_bits_at_any_date() -> None:
    year_10000 = 253_402_300_800
    rng = random.Random(1)
    assert min(token_at(0, rng) for _ in range(10)) >= 1
    assert token_at(-5, rng) == 1
    assert token_at(year_10000, rng) < MOST_TOKEN == 2**63 - 1


def test_the_next_token_of_a_worker_bears_its_checksum() -> None:
    tokens = [
        next_token(None, 1, "w1"),
        next_token(5_000_999, 1, "w1"),
        next_token(7, 10**15, "w1"),
    ]
    assert all(may_be_by(token, "w1") for token in tokens)
    assert not any(may_be_by(token, other) for token in tokens for other in ("w2", "w3"))
    assert not may_be_by(None, "w1")
    assert 1 <= tokens[0] <= 1000
    assert 5_000_999 < tokens[1] <= 5_001_999
    assert 10**15 <= tokens[2] < 10**15 + 1000
    assert next_token(MOST_TOKEN - 2, 1, "w1") == MOST_TOKEN - 1
