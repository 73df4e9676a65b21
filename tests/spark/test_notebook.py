"""The notebook of the examples: a kernel executes all of its cells, with a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import pace

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return found


def test_it_is_kept_without_what_a_run_leaves() -> None:
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.limit(180)
def test_a_kernel_executes_it_and_its_chart_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for needed in ("ipykernel", "matplotlib"):
        pytest.importorskip(needed)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    for name in ("MPLBACKEND", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=round(pace.seconds(120)),
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    outputs = {index: cell.get("outputs", []) for index, cell in enumerate(notebook.cells)}
    printed = "".join(one["text"] for each in outputs.values() for one in each if "text" in one)
    assert "1,715 events of 15 airlines, each once" in printed
    (chart,) = [
        one for each in outputs.values() for one in each if "image/png" in one.get("data", {})
    ]
    assert len(chart["data"]["image/png"]) > 10_000, "it has bars"
