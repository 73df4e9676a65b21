"""When Spark looks for data sources: not in a session that reads no stream."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkinesis.local import LocalServer
from tests.spark.query_process import ROOT
from tests.streams import put


@pytest.mark.long
def test_a_session_without_a_stream_does_not_look_for_sources(
    server: LocalServer, tmp_path: Path
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="s", ShardCount=1)
    put(kinesis, "s", [b"one", b"two"])
    tripwire = tmp_path / "packages" / "pyspark_tripwire.py"
    tripwire.parent.mkdir()
    tripwire.write_text(f"from pathlib import Path\nPath({str(tmp_path)!r}, 'looked').touch()\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.lookup_query", str(tmp_path), server.endpoint_url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tripwire.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "False 2 True" in done.stdout, done.stderr[-3000:]
