"""Ships a packed virtual environment to a standalone cluster whose executors have no package.

python -m tests.compat.packed
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from sparkinesis.local import LocalServer
from tests.compat import building
from tests.spark.cluster import SPARK, Cluster
from tests.spark.query_process import group_process
from tests.streams import put

APPLICATION = Path(__file__).with_name("packed_query.py")
ENVIRONMENT = "environment"
"""The folder of the archive's files, in the working folder of the driver and of each executor."""
KEYS = [f"plane {n}" for n in range(20)]
REGION = "eu-west-1"


def packed(folder: Path) -> Path:
    """A virtual environment with the wheel, as an archive."""
    python = folder / "venv" / "bin" / "python"
    building.uv("venv", "--python", sys.executable, str(folder / "venv"))
    wheel = f"sparkinesis[spark] @ {building.wheel().as_uri()}"
    building.uv("pip", "install", "--python", str(python), wheel, "venv-pack", "setuptools<81")
    archive = folder / "packed.tar.gz"
    command = [str(python.with_name("venv-pack")), "--quiet", "--output", str(archive)]
    subprocess.run([*command, "--prefix", str(folder / "venv")], check=True)
    return archive


def submitted(cluster: Cluster, archive: Path, driver: Path, arguments: list[str]) -> None:
    """Run the query to its end, as a user does who has unpacked the archive beside it."""
    with tarfile.open(archive) as files:
        files.extractall(driver / ENVIRONMENT, filter="fully_trusted")
    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": "2",
    }
    command = [
        str(SPARK / "bin" / "spark-submit"),
        *("--master", cluster.master, "--archives", f"{archive}#{ENVIRONMENT}"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *(str(APPLICATION), *arguments),
    ]
    log = driver / "query.log"
    variables = cluster.environment(PYSPARK_PYTHON=f"./{ENVIRONMENT}/bin/python")
    # `group_process` begins in the root of the repository.
    with group_process(["env", f"--chdir={driver}", *command], log, variables) as process:
        assert process.wait() == 0, log.read_text()[-3000:]


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="sparkinesis-packed-"))
    archive = packed(folder)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    with LocalServer(port=0) as server, Cluster(folder / "cluster") as cluster:
        kinesis = server.client("kinesis", region=REGION)
        kinesis.create_stream(StreamName="flights", ShardCount=2)
        put(kinesis, "flights", [key.encode() for key in KEYS])
        output = folder / "output"
        arguments = [server.endpoint_url, "flights", REGION, str(output)]
        submitted(cluster, archive, folder / "driver", arguments)
    rows = [row for part in output.glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    assert sorted(row["partitionKey"] for row in rows) == sorted(KEYS)
    for row in rows:
        assert Path(row["package"]).is_relative_to(Path(row["executor"], ENVIRONMENT)), row
        assert Path(row["executor"]).is_relative_to(folder / "cluster"), row
    size = archive.stat().st_size >> 20
    print(f"Executors read {len(rows)} rows by the package of the archive, which has {size} MiB.")


if __name__ == "__main__":
    main()
