"""Which faults are planted, and that each of them is another program."""

from __future__ import annotations

import ast

from tests.mutation.equivalents import EQUIVALENTS
from tests.mutation.faults import faults_of
from tests.mutation.tree import PACKAGE

TEXT = '''
"""A module."""
import os
LIMIT: int = 3

@decorated(1)
def ends(at: int, *, is_open: bool = True) -> bool:
    """Say so."""
    at = max(at, 0)
    if at <= LIMIT and is_open:
        raise ValueError(f"{at + 1} is too small")
    return found(at, "é", why="too late")[1:]
'''


def test_each_expression_and_statement_has_its_faults() -> None:
    assert {(one.line, one.before, one.after) for one in faults_of(TEXT)} == {
        (4, "3", "4"),
        (7, "True", "False"),
        (9, "at = max(at, 0)", "pass"),
        (9, "max(at, 0)", "min(at, 0)"),
        (9, "0", "1"),
        (10, "at <= LIMIT", "at < LIMIT"),
        (10, "at <= LIMIT", "at > LIMIT"),
        (10, "at <= LIMIT and is_open", "at <= LIMIT"),
        (10, "at <= LIMIT and is_open", "is_open"),
        (10, "at <= LIMIT and is_open", "at <= LIMIT or is_open"),
        (10, "at <= LIMIT and is_open", "not (at <= LIMIT and is_open)"),
        (11, "raise ValueError(f'{at + 1} is too small')", "pass"),
        (12, "found(at, 'é', why='too late')[1:]", "None"),
        (12, "found(at, 'é', why='too late')", "found('é', at, why='too late')"),
        (12, "found(at, 'é', why='too late')", "found(at, 'é')"),
        (12, "'é'", "'éx'"),
        (12, "1:", ":"),
        (12, "1", "2"),
    }


def test_each_fault_makes_another_program() -> None:
    text = (PACKAGE / "lease/held.py").read_text()
    program = ast.dump(ast.parse(text))
    faults = faults_of(text)
    assert len(faults) > 190
    assert program not in {ast.dump(ast.parse(one.in_text(text))) for one in faults[::5]}


def test_what_is_listed_as_changing_nothing_is_still_there() -> None:
    faults = {
        (file, one.where, one.before, one.after)
        for file in {key[0] for key in EQUIVALENTS}
        for one in faults_of((PACKAGE / file).read_text())
    }
    assert [key for key in EQUIVALENTS if key not in faults] == []
