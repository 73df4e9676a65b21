"""The reason of a failed job tells what to do."""

from __future__ import annotations

import pytest

from sparkinesis.fleet.spark_launcher import failure_reason

TRACE = (
    "Job aborted due to stage failure: SparkTask 0 in stage 5.0 failed 4 times: PythonException: "
    "Traceback (most recent call last):\n"
    '  File "pyspark.zip/pyspark/worker.py", line 4207, in invoke_udf\n'
    "    func, profiler, deserializer, serializer = read_udfs(\n"
)
JAVA = (
    "\n SQLSTATE: 38000\n\tat org.apache.spark.api.python.PythonRunner\n\nDriver stacktrace:\n..."
)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            f"{TRACE}sparkinesis.errors.FleetError: No driver at 10.0.0.1:1. Set host.{JAVA}",
            "FleetError: No driver at 10.0.0.1:1. Set host.",
        ),
        (
            f"{TRACE}ModuleNotFoundError: No module named 'flights.processors'{JAVA}",
            (
                "ModuleNotFoundError: No module named 'flights.processors'. Executors cannot "
                "import it: install it there, or ship it by --py-files or "
                "spark.addArtifacts(..., pyfile=True)."
            ),
        ),
        (
            (
                f"{TRACE}[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 "
                "than that in driver: 3.12, PySpark cannot run with different minor versions."
                f"{JAVA}"
            ),
            (
                "This program runs Python 3.12, and Spark's workers run Python 3.11. The processor "
                "is pickled for them, so both must be one minor version. Run this program with "
                "Python 3.11, or set PYSPARK_PYTHON to a Python 3.12 in the environment of the "
                "Spark driver, which with Spark Connect is the server, before it starts."
            ),
        ),
        (f"{TRACE}ValueError: of the user{JAVA}", f"{TRACE}ValueError: of the user"),
        ("Job 5 cancelled because SparkContext was shut down",) * 2,
        ("", "RuntimeError"),
    ],
)
def test_a_reason_is_what_helps(raised: str, said: str) -> None:
    assert failure_reason(RuntimeError(raised)) == said


def test_a_long_reason_is_shortened_in_the_middle() -> None:
    said = failure_reason(RuntimeError(f"begin {'x' * 10_000} end"))
    assert len(said) < 2_100
    assert said.startswith("begin ")
    assert said.endswith(" end")
