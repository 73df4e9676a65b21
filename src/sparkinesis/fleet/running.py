"""Runs an application in several workers: in processes of this machine, or on executors.

A command, which has no Spark session, makes one by spark-submit's options.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sparkinesis.errors import FleetError, OptionError
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.supervision.supervised import Supervised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.fleet_options import FleetOptions


_CONNECT = "sc://"


def run_supervised(
    supervised: Supervised[Any],
    spark: SparkSession | None,
    workers: int,
    fleet: FleetOptions | None,
    processes: int | Literal["auto"] | None,
) -> Fleet | None:
    """Run the workers of an application, by the arguments of its ``run``, which are checked."""
    if spark is None:
        from sparkinesis.worker.supervision.processes import run_in_processes  # noqa: PLC0415

        run_in_processes(supervised, processes)
        return None
    # Who needs no Spark has none.
    from sparkinesis.fleet.fleet import Fleet  # noqa: PLC0415
    from sparkinesis.fleet.fleet_options import FleetOptions  # noqa: PLC0415

    return Fleet(supervised, spark, workers, fleet or FleetOptions())


def run_fleet(
    supervised: Supervised[Any],
    module: str,
    workers: int,
    master: str | None,
    submit: Sequence[str],
) -> None:
    """Run a fleet until a signal, a record processor or a failure ends it.

    A signal shuts the fleet down gracefully, a second one at once. ``module``: the name of the
    application's module, which the executors get, too. ``master``: Spark's, or ``sc://...`` of a
    Spark Connect server; None: as Spark's configuration says. ``submit``: options of spark-submit.

    Raises `OptionError` if PySpark is not installed, `FleetError` if Spark does not start, and the
    errors of `Fleet` and of `Fleet.await_termination`.
    """
    spark = _session(supervised.name, master, submit)
    from sparkinesis.fleet.fleet import Fleet  # noqa: PLC0415 - imports PySpark
    from sparkinesis.fleet.fleet_options import FleetOptions  # noqa: PLC0415 - as above

    try:
        # The folder stays: executors of a local master get its file when their first task starts.
        with tempfile.TemporaryDirectory() as folder:
            _ship(spark, module, folder)
            fleet = Fleet(supervised, spark, workers, FleetOptions())
            with graceful_on_signals(fleet.request_shutdown):
                fleet.await_termination()
    finally:
        spark.stop()


def _session(name: str, master: str | None, submit: Sequence[str]) -> SparkSession:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - slow, and an extra
    except ImportError:
        raise OptionError(
            "--workers runs the application on Spark, and PySpark is not installed. Install "
            "sparkinesis[spark], or use --processes for processes of this machine."
        ) from None
    builder = SparkSession.builder.appName(name)
    if master is not None and master.startswith(_CONNECT):
        if submit:
            raise OptionError(
                f"{shlex.join(submit)} is for spark-submit, and {master} is a Spark Connect "
                "server, which got its options when it started. Leave them out."
            )
        return _made(builder.remote(master))
    # As spark-submit and pyspark read their options: they start the JVM of this driver.
    options = [*submit, *(["--master", master] if master else []), "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(options)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return _made(builder)


def _made(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise FleetError(
            f"Spark did not start: {type(error).__name__}: {error}. The lines above may say why; "
            "check --master, the options of spark-submit, and that Java 17 or newer is installed."
        ) from error


def _ship(spark: SparkSession, module: str, folder: str) -> None:
    """Send the application's module to the executors; of a package, all of its files."""
    found = sys.modules[module.partition(".")[0]]
    if found.__file__ is None:
        return  # a namespace package: its parts may lie anywhere
    file = Path(found.__file__)
    if file.name == "__init__.py":
        name = file.parent.name
        file = Path(shutil.make_archive(f"{folder}/{name}", "zip", file.parent.parent, name))
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(str(file), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(file))
