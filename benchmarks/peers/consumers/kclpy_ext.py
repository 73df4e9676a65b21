"""kclpy-ext: amazon_kclpy with its jars, by which a Java daemon runs a Python process for a shard.

This process becomes the daemon. The processes of shards are `kclpy_processor`'s.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import amazon_kclpy

from benchmarks.peers.consumers.task import REGION, TASK_VARIABLE, Task

DAEMON = "software.amazon.kinesis.multilang.MultiLangDaemon"
LOGGING = """<configuration>
  <appender name="LOG" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="LOG"/></root>
</configuration>
"""


def properties(task: Task) -> dict[str, str]:
    found = {
        "executableName": f"{sys.executable} -m benchmarks.peers.consumers.kclpy_processor",
        "streamName": task.stream,
        "applicationName": task.application,
        "workerId": task.worker,
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "processingLanguage": "python/3",
        "initialPositionInStream": "LATEST" if task.from_latest else "TRIM_HORIZON",
        "regionName": REGION,
        "kinesisEndpoint": task.endpoint,
        "dynamoDBEndpoint": task.endpoint,
        "cloudWatchEndpoint": task.endpoint,
        "metricsLevel": "NONE",
        "retrievalMode": "FANOUT" if task.fan_out else "POLLING",
    }
    if task.is_backlog:
        # As a 3.x worker alone, it would wait for a minute or two before it takes a lease.
        found["clientVersionConfig"] = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"
    if task.idle_seconds is not None:
        found["idleTimeBetweenReadsInMillis"] = str(int(task.idle_seconds * 1000))
    return found


def main() -> None:
    task = Task.from_arguments()
    folder = Path(task.folder)
    lines = [f"{name} = {value}\n" for name, value in properties(task).items()]
    (folder / "kcl.properties").write_text("".join(lines))
    (folder / "logback.xml").write_text(LOGGING)
    jars = Path(amazon_kclpy.__file__).parent / "jars" / "*"
    command = ["java", "-cp", f"{jars}:{folder}", DAEMON, "kcl.properties"]
    command += ["--log-configuration", str(folder / "logback.xml")]
    os.environ[TASK_VARIABLE] = task.to_json()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
