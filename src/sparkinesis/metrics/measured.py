"""Measures how long something takes, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

OK = "ok"
FAILED = "failed"

_P = ParamSpec("_P")
_T = TypeVar("_T")


def measured(
    run: Callable[_P, _T],
    clock: Callable[[], float],
    observe: Callable[[str, float], None],
    result_of: Callable[[Exception], str] = lambda _: FAILED,
    result: Callable[[_T], str] = lambda _: OK,
) -> Callable[_P, _T]:
    """Return ``run``, such that ``observe`` gets the result and the seconds each time.

    clock: monotonic, in seconds. result_of: names the result of a run that raised. result: names
    that of one that returned. What is no `Exception` ends the program rather than the run, and is
    not observed.
    """

    def measure(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        began = clock()
        try:
            value = run(*args, **kwargs)
        except Exception as error:
            observe(result_of(error), clock() - began)
            raise
        observe(result(value), clock() - began)
        return value

    return measure
