"""`make check`: which tests are the nearest of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import check

FILES = {
    "src/sparkinesis/__init__.py": "",
    "src/sparkinesis/lease/taker.py": "",
    "src/sparkinesis/lease/known.py": "",
    "src/sparkinesis/lease/table/client.py": "",
    "src/sparkinesis/lease/inner.py": "",
    "src/sparkinesis/lease/outer.py": "from sparkinesis.lease.inner import (\n    One,\n)\n",
    "src/sparkinesis/cli/dead_letters.py": "from sparkinesis.lease import outer\n",
    "src/sparkinesis/stream/plugin.py": "",
    "tests/unit/lease/test_taker.py": "from sparkinesis.lease.known import Known\n",
    "tests/unit/lease/test_outer.py": "import sparkinesis.lease.known\n",
    "tests/unit/lease/test_few.py": "from sparkinesis.lease import known\n",
    "tests/unit/terminal/test_client.py": "",
    "tests/unit/stream/test_page.py": "from sparkinesis.lease.known import Known\n",
    "tests/integration/lease/test_client.py": "",
    "tests/integration/worker/test_dead_letters_command.py": "",
    "tests/spark/test_queries.py": "from sparkinesis.lease.known import Known\n",
}


@pytest.fixture
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    check.forget()
    yield
    check.forget()


@pytest.mark.usefixtures("_tree")
@pytest.mark.parametrize(
    ("path", "tests"),
    [
        pytest.param("src/sparkinesis/lease/taker.py", ["unit/lease/test_taker.py"], id="its own"),
        pytest.param(
            "src/sparkinesis/lease/known.py",
            ["unit/lease/test_few.py", "unit/lease/test_outer.py", "unit/lease/test_taker.py"],
            id="three that import it, of like folders",
        ),
        pytest.param(
            "src/sparkinesis/lease/table/client.py",
            ["integration/lease/test_client.py"],
            id="of its name, in a like folder",
        ),
        pytest.param(
            "src/sparkinesis/cli/dead_letters.py",
            ["integration/worker/test_dead_letters_command.py"],
            id="of the command",
        ),
        pytest.param(
            "src/sparkinesis/lease/inner.py",
            ["unit/lease/test_outer.py"],
            id="of what imports it",
        ),
        pytest.param(
            "src/sparkinesis/stream/plugin.py", ["unit/stream/test_page.py"], id="of its folder"
        ),
        pytest.param("tests/unit/lease/test_few.py", ["unit/lease/test_few.py"], id="a test"),
        pytest.param("tests/pace.py", [], id="another file"),
    ],
)
def test_the_nearest_tests(path: str, tests: list[str]) -> None:
    found = check.nearest(Path(path))
    assert sorted(found) == sorted(Path("tests", test) for test in tests)
    last = check.commands(Path(path))[-1]
    assert last[last.index("-m") + 1] == ("pytest" if tests else "mypy")
    assert last[len(last) - len(found) :] == [str(test) for test in found]


@pytest.mark.parametrize(
    ("given", "problem"),
    [([], "Check which file?"), (["no.py"], "no file 'no.py'"), (["a", "b"], "no file 'a b'")],
)
def test_a_file_must_be_named(
    given: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(given) == 2
    said = capsys.readouterr().out
    assert problem in said
    assert "make check FILE=src/" in said


def test_each_module_has_tests_that_exist() -> None:
    for path in (check.ROOT / check.SOURCE).rglob("[!_]*.py"):
        found = check.nearest(path.relative_to(check.ROOT))
        assert 1 <= len(found) <= 3, path
        assert all((check.ROOT / test).is_file() for test in found)
