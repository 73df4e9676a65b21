"""A Spark standalone cluster on the loopback interface, and how a user's code gets onto it.

The executors' Python has the packages that the source depends on, as on any cluster, and not the
source itself: that one is shipped with the query, by ``--py-files``. The driver has it on its
PYTHONPATH, because Spark looks for shipped files in the wrong folder where it plans a stream
(``PythonStreamingSourceRunner`` looks below ``streaming_job``, which nothing writes to).
"""

from __future__ import annotations

import os
import py_compile
import re
import site
import subprocess
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from sparkinesis.local.java import use_java
from tests.spark.class_archive import java_options
from tests.spark.query_process import group_process, wait_until

SPARK = Path(pyspark.__file__).parent
APPLICATION = Path(__file__).with_name("cluster_query.py")
HOSTS = ("127.0.0.1", "localhost")
"""One machine by two names: Spark puts no speculative copy of a task on the host of the first."""

CORES = 4
"""Of each of the cluster's workers; Spark takes anyone's word for how many there are."""

EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Cluster:
    """A master and two workers, and a Python without the source for both."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.master = ""
        self.work = folder / "work"
        self.python = python_with_dependencies(folder / "python")

    def __enter__(self) -> Cluster:
        use_java()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        arguments = ["--host", HOSTS[0], "--port", "0", "--webui-port", "0"]
        master = self._daemon("master.Master", arguments, r"Starting Spark master at (\S+)")
        self.master = master()
        workers = []
        for host in HOSTS:
            places = ["--host", host, "--port", "0", "--webui-port", "0"]
            size = ["--cores", str(CORES), "--memory", "1g", "--work-dir", str(self.work / host)]
            arguments = [*places, *size, self.master]
            announcement = r"Successfully registered with master (\S+)"
            workers.append(self._daemon("worker.Worker", arguments, announcement))
        for is_there in workers:
            is_there()

    def _daemon(self, name: str, arguments: list[str], announcement: str) -> Callable[[], str]:
        """Start a process of the cluster. Call the result to wait for what it announces."""
        log = self._folder / f"{name}-{len(list(self._folder.glob('*.log')))}.log"
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        environment = self.environment(
            SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=java_options()
        )
        process = self._stack.enter_context(group_process([*command, *arguments], log, environment))

        def wait() -> str:
            wait_until(lambda: re.search(announcement, log.read_text()), process, log, every=0.1)
            found = re.search(announcement, log.read_text())
            assert found
            return found[1]

        return wait

    def environment(self, **additions: str) -> dict[str, str]:
        """Of every process on the cluster: nothing of where the tests find the source."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        python = str(self.python)
        places = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self._folder / "scratch")}
        return {**kept, "PYSPARK_PYTHON": python, "SPARK_HOME": str(SPARK), **places, **additions}

    @contextmanager
    def submit(
        self,
        arguments: list[str],
        *,
        py_files: list[Path],
        settings: Mapping[str, str],
        log: Path,
        application: Path = APPLICATION,
        cores: int = 1,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program as a user does, by spark-submit; it is killed in the end.

        cores: of each of its two executors.
        """
        defaults = {
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.sql.codegen.wholeStage": "false",
            # Not a task before both are there. A standalone master expects none without a maximum.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": str(len(HOSTS) * cores),
        }
        pairs = {**defaults, **settings}.items()
        command = [
            str(SPARK / "bin" / "spark-submit"),
            *("--master", self.master, "--py-files", ",".join(map(str, py_files))),
            *(part for name, value in pairs for part in ("--conf", f"{name}={value}")),
            str(application),
            *arguments,
        ]
        on_driver = os.pathsep.join(map(str, py_files))
        with group_process(command, log, self.environment(PYTHONPATH=on_driver)) as process:
            yield process

    def executors(self) -> dict[str, int]:
        """The process ids of this cluster's executors, by the folders that they work in."""
        return {
            str(folder): pid
            for pid, folder, command in self._processes()
            if EXECUTOR in command.split(b"\0")
        }

    def python_processes(self, folder: str = "") -> set[int]:
        """The process ids of the executors' Python, of all or of one."""
        return {
            pid
            for pid, place, command in self._processes()
            if b"pyspark" in command and place.is_relative_to(folder or self.work)
        }

    def _processes(self) -> Iterator[tuple[int, Path, bytes]]:
        """Process id, folder, and command line of all that executors have started."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended, or is not ours
                folder = (process / "cwd").readlink()
                if folder.is_relative_to(self.work):
                    yield int(process.name), folder, (process / "cmdline").read_bytes()


def python_with_dependencies(folder: Path) -> Path:
    """A Python with the packages of this one, but for those that are installed in place.

    A path file adds a folder of packages, and the path files in that folder are not looked at.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    base = {"base": str(folder), "platbase": str(folder)}
    # Python 3.10 has no scheme of that name.
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"
    packages = Path(sysconfig.get_path("purelib", scheme, base))
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


def zip_package(package: Path, target: Path) -> Path:
    """A package's folder as what ``--py-files`` takes, with the bytecode.

    Python keeps no bytecode for modules in an archive: each process would compile them again.
    """
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent)
            bytecode = target.with_suffix(".pyc")
            py_compile.compile(str(path), str(bytecode), str(name), doraise=True)
            archive.write(path, name)
            archive.write(bytecode, name.with_suffix(".pyc"))
    return target


def read_batches(output: Path) -> dict[int, pa.Table]:
    """What `cluster_query` has written: the rows of each batch that is whole."""
    return {
        int(folder.name.split("=")[1]): pa.concat_tables(
            pq.ParquetFile(part).read() for part in sorted(folder.glob("*.parquet"))
        )
        for folder in output.glob("batch_id=*")
    }


def row_count(output: Path) -> int:
    """How many rows that is, without reading them."""
    return sum(pq.read_metadata(p).num_rows for p in output.glob("batch_id=*/*.parquet"))
