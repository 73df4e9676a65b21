"""README.md, CONTRIBUTING.md and docs/: their links lead somewhere, and their commands exist.

The programs of the README are run by ``tests/spark/test_readme.py``. Here, commands are
parsed as the command line, make and the examples parse them, and nothing is started.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
import runpy
import shlex
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.source.options.option_table import OPTIONS
from tests.command import group
from tests.documents import (
    DOCS,
    INDEX,
    PAGES,
    README,
    ROOT,
    Block,
    anchors,
    blocks,
    commands,
    links,
    listed,
    shown,
    without_blocks,
)

BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [
    pytest.param(line, id=f"{block}: {line}")
    for block in BLOCKS
    if block.language in {"shell", "console"}
    for line in commands(block)
]

OTHERS = {
    "aws",
    "docker",
    "du",
    "find",
    "mkdir",
    "mv",
    "printf",
    "protoc",
    "rm",
    "sbin/start-connect-server.sh",
    "seq",
    "source",
    "spark-pipelines",
    "spark-submit",
    "tar",
    "venv-pack",
    "wc",
}
"""Programs that are not ours; their arguments are not looked at."""

SPARKS_OWN = {"path", "checkpointLocation", "queryName"}
"""Options that Spark defines."""

DELTAS_OWN = {"txnAppId", "txnVersion"}
"""Options that Delta defines."""

OF_LAKES = {"deltalake", "psycopg", "pyiceberg"}
"""Packages of `make test-lakes`, which may not be installed."""

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
FLOWS = DOCS / "how-it-flows.md"
FINDINGS = ROOT / "findings/README.md"
PACKAGE = ROOT / "src" / "sparkinesis"
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_names_its_language(block: Block) -> None:
    assert block.language in {"python", "shell", "console", "sql", "json", "yaml", "ini", "text"}
    if block.language == "console":
        assert commands(block), "a console block shows a command and its output"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"], ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_each_page_is_in_one_toctree() -> None:
    entries = Counter(shown(entry) for page in PAGES for entry in listed(page))
    pages = {shown(page) for page in PAGES if page.is_relative_to(DOCS)} - {shown(INDEX)}
    assert entries.keys() - pages == set(), "toctrees list what does not exist"
    assert pages - entries.keys() == set(), "no toctree lists these pages"
    assert {entry for entry, times in entries.items() if times > 1} == set()


def test_the_toctrees_lead_from_the_first_page_to_every_page() -> None:
    found, ahead = {INDEX}, [INDEX]
    while ahead:
        new = [entry for entry in listed(ahead.pop()) if entry not in found and entry.exists()]
        found.update(new)
        ahead += new
    assert {shown(page) for page in PAGES if page.is_relative_to(DOCS)} == set(map(shown, found))


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_exists_with_its_arguments(line: str) -> None:
    for part in re.split(r" \| ", line):
        _check_command(shlex.split(re.sub(r" [<>] \S+", "", part)))


def _check_command(words: list[str]) -> None:
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    program, arguments = words[0], words[1:]
    if program == "sparkinesis":
        _check_sparkinesis(arguments)
    elif program == "make":
        _check_make(arguments)
    elif program == "python" and arguments[0].endswith(".py"):
        pass  # a file of the page: tests/snippets runs it
    elif program == "python":
        assert arguments[0] == "-m"
        _check_module(arguments[1], arguments[2:])
    elif program == "pip":
        _check_pip(arguments)
    else:
        assert program in OTHERS | {"export"}


def _check_sparkinesis(arguments: list[str]) -> None:
    if arguments[0].startswith("--"):
        assert arguments[0] in {name for param in group().params for name in param.opts}
        return
    _check_words("sparkinesis", group(), arguments)


def _check_words(name: str, command: Any, arguments: list[str], parent: Any = None) -> None:
    if not hasattr(command, "commands"):
        command.make_context(name, arguments, parent=parent)
        return
    first = arguments[:1]
    with command.make_context(name, first, parent=parent, resilient_parsing=True) as context:
        inner, found, _ = command.resolve_command(context, arguments)
        assert found is not None
        _check_words(inner, found, arguments[1:], context)


def _check_make(arguments: list[str]) -> None:
    for word in arguments:
        name, is_variable, value = word.partition("=")
        if not is_variable:
            assert re.search(rf"^{name}:", MAKEFILE, re.MULTILINE), f"no target {name}"
            continue
        assert f"$({name})" in MAKEFILE, f"no variable {name}"
        if name == "ARGS":
            recipe = re.search(rf"^{arguments[0]}:.*\n\t.*python -m (\S+)", MAKEFILE, re.MULTILINE)
            assert recipe is not None
            _check_module(recipe[1], value.split())


def _check_module(module: str, arguments: list[str]) -> None:
    flags = {word.partition("=")[0] for word in arguments if word.startswith("-")}
    if flags:
        assert flags <= _flags(module)
    else:
        assert importlib.util.find_spec(module) is not None


@cache
def _flags(module: str) -> set[str]:
    """Return the options of a module that is a program, in this process: imports are shared."""
    answer = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(answer),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # other tests have imported it
        patch.setattr(sys, "argv", [module, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
    assert not ended.value.code
    return set(re.findall(r"--?[a-z][a-z-]*", answer.getvalue()))


def _check_pip(arguments: list[str]) -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for word in arguments:
        if found := re.fullmatch(r"sparkinesis\[(.*)\]", word):
            for extra in found[1].split(","):
                assert re.search(rf"^{extra} = ", project, re.MULTILINE), f"no extra {extra}"


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_program_uses_names_that_exist(block: Block) -> None:
    own = files(block.page)
    for node in ast.walk(ast.parse(block.text)):
        match node:
            case ast.ImportFrom(str(module)) if module in own:
                pass
            case ast.Import(names):
                for alias in names:
                    if not is_missing(alias.name):
                        importlib.import_module(alias.name)
            case ast.ImportFrom(str(module), names) if not is_missing(module):
                imported = importlib.import_module(module)
                for alias in names:
                    if not hasattr(imported, alias.name):
                        importlib.import_module(f"{module}.{alias.name}")
            case ast.Call(ast.Attribute(attr="option"), [ast.Constant(str(name)), _]):
                assert name in {*OPTIONS, *SPARKS_OWN, *DELTAS_OWN}


def files(page: Path) -> set[str]:
    """The modules that a page has as files, by the first lines of its programs."""
    return set(re.findall(r"^# (\w+)\.py$", page.read_text("utf-8"), re.MULTILINE))


def is_missing(module: str) -> bool:
    package = module.partition(".")[0]
    return package in OF_LAKES and importlib.util.find_spec(package) is None


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_all_code_is_in_fenced_blocks(page: Path) -> None:
    assert not re.search(r"^(?![ -]).*\n\n {4}\S", without_blocks(page), re.MULTILINE)


@pytest.mark.parametrize("page", [CONTRIBUTING, FLOWS, FINDINGS], ids=shown)
def test_the_paths_for_contributors_exist(page: Path) -> None:
    named = set(re.findall(r"`([\w/]+(?:/[\w*]+|\.py))`", page.read_text("utf-8")))
    missing = {
        path for path in named if not any(next(at.glob(path), None) for at in (ROOT, PACKAGE))
    }
    assert missing == set()


def test_what_flows_through_a_file_is_in_the_file() -> None:
    named = re.findall(r"`([\w/]+\.py)`\s+\(`(\w+)`\)", FLOWS.read_text("utf-8"))
    assert len(named) > 5
    missing = [(path, name) for path, name in named if name not in (PACKAGE / path).read_text()]
    assert missing == []


def test_the_layout_in_contributing_is_that_of_the_package() -> None:
    layout = next(each for each in blocks(CONTRIBUTING) if each.language == "text")
    lines = layout.text.partition("src/sparkinesis/\n")[2].partition("\ntests/")[0]
    named = set(re.findall(r"\b(\w+)(?:/|\.py)", lines))
    assert inside(PACKAGE) <= named


def test_a_renamed_class_is_no_longer_called_by_its_old_name() -> None:
    words = CONTRIBUTING.read_text("utf-8").partition("## Words")[2].partition("\n## ")[0]
    old = {found[1] for found in re.finditer(r"`([A-Z]\w+)`(?: of `[\w/]+`)?:\s+`[A-Z]", words)}
    defined = set[str]()
    for path in PACKAGE.rglob("*.py"):
        defined.update(re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE))
    assert old - defined == set(), "renamed: CONTRIBUTING's table of words still has the old name"


def test_contributing_is_short() -> None:
    assert len(CONTRIBUTING.read_bytes()) <= 15_000


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_each_folder_has_a_map(folder: Path) -> None:
    # The docstring of __init__.py, or comments below one that the reference shows to users.
    text = (folder / "__init__.py").read_text("utf-8")
    code = next((each for each in ast.parse(text).body if not isinstance(each, ast.Expr)), None)
    head = text.splitlines()[: code.lineno - 1] if code else text.splitlines()
    named = set(re.findall(r"(?<!`)`([a-z_0-9]+(?:/[a-z_0-9]+)*)`(?!`)", "\n".join(head)))
    assert inside(folder) - named == set(), "__init__.py does not name these modules"
    missing = {name for name in named - inside(folder) if not is_module(PACKAGE / name)}
    assert missing == set(), "__init__.py names what does not exist"
    assert 3 <= len(head) <= 24


def inside(folder: Path) -> set[str]:
    """The modules and folders of a folder."""
    found = {path.stem for path in folder.iterdir() if is_module(path.with_suffix(""))}
    return found - {"__init__"}


def is_module(path: Path) -> bool:
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
