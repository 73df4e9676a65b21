"""Measures how long something takes, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import OFF, Metrics

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
    """Return ``run``, after each call of which ``observe`` gets the result and the seconds.

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


def timed(
    run: Callable[[], _T],
    metrics: Metrics,
    metric: Metric,
    labels: tuple[str, ...],
    *,
    clock: Callable[[], float],
    result: Callable[[_T], str] = lambda _: OK,
) -> _T:
    """Run once, and observe the seconds of the run with these labels and the result as the last.

    Without metrics, no clock is asked.
    """
    if metrics is OFF:
        return run()

    def observe(found: str, seconds: float) -> None:
        metrics.observe(metric, (*labels, found), seconds)

    return measured(run, clock, observe, result=result)()
