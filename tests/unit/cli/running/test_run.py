"""Which files start an application again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkinesis.cli.running.run import change, sources_below


def test_the_python_files_of_a_project(tmp_path: Path) -> None:
    for name in ("a.py", "in/b.py", ".venv/c.py", "lib/site-packages/d.py", "in/__pycache__/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "data.csv").touch()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path)
    found = sources_below(tmp_path)
    assert sorted(found) == [str(tmp_path / "a.py"), str(tmp_path / "in/b.py")]
    (tmp_path / "a.py").write_text("xy")
    assert change(found, sources_below(tmp_path)) == "a.py"
    assert sources_below(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("after", "name"),
    [
        ({"/x/a.py": (1, 1)}, None),
        ({"/x/a.py": (2, 1)}, "a.py"),
        ({"/x/a.py": (1, 2)}, "a.py"),
        ({}, "a.py"),
        ({"/x/a.py": (1, 1), "/x/b.py": (1, 1)}, "b.py"),
    ],
)
def test_a_change(after: dict[str, tuple[int, int]], name: str | None) -> None:
    assert change({"/x/a.py": (1, 1)}, after) == name
