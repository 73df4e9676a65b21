"""Runs an application in several workers: in processes of this machine, or on executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sparkinesis.worker.supervision.supervised import Supervised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.fleet_options import FleetOptions


def run_supervised(
    supervised: Supervised[Any],
    spark: SparkSession | None,
    workers: int,
    fleet: FleetOptions | None,
    processes: int | Literal["auto"] | None,
) -> Fleet | None:
    """Run the workers of an application, by the arguments of its ``run``, which are checked."""
    if spark is None:
        from sparkinesis.worker.supervision.processes.start import run_in_processes  # noqa: PLC0415

        run_in_processes(supervised, processes)
        return None
    # Who needs no Spark has none.
    from sparkinesis.fleet.fleet import Fleet  # noqa: PLC0415
    from sparkinesis.fleet.fleet_options import FleetOptions  # noqa: PLC0415

    return Fleet(supervised, spark, workers, fleet or FleetOptions())
