"""The files below .github: workflows run targets that exist, with no more permission than needed.

`make release-check` holds them against GitHub's schema, and against zizmor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.checks import machine, workflows
from tests.release.checks.machine import ROOT

PATHS = workflows.paths()
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
_OF_READERS = {"contents": "read"}
_WRITERS = {
    ("docs", "publish"): {"pages": "write", "id-token": "write"},
    ("release", "publish"): {"id-token": "write"},
}
"""The jobs that may write, and what: PyPI and Pages know them by a token of GitHub."""


def the(name: str) -> dict[str, Any]:
    return workflows.load(workflows.FOLDER / f"{name}.yml")


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    return workflows.load(request.param)


def test_workflows_are_named_as_their_files() -> None:
    assert {path.stem for path in PATHS} == {"docs", "release", "tests"}
    assert all(workflows.load(path)["name"] == path.stem for path in PATHS)


def test_jobs_have_the_permissions_that_they_need_and_a_limit_of_time(
    workflow: dict[str, Any],
) -> None:
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        expected = _WRITERS.get((workflow["name"], name), _OF_READERS)
        assert job["permissions"] == expected, name
        assert job["timeout-minutes"] <= 90
        assert "environment" in job or expected == _OF_READERS


def test_a_job_that_may_write_runs_no_code_of_the_repository() -> None:
    for name, job in _WRITERS:
        found = [step for of, step in workflows.steps(the(name)) if of == job]
        assert found
        for step in found:
            assert "run" not in step
            assert not step["uses"].startswith("actions/checkout@")


def test_nothing_that_strangers_send_is_run_with_permissions(workflow: dict[str, Any]) -> None:
    assert set(workflow["on"]) <= {"push", "pull_request"}
    for _, step in workflows.steps(workflow):
        assert "${{" not in step.get("run", ""), "a value goes through env"
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_only_a_tag_publishes_and_only_what_was_checked() -> None:
    release = the("release")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    assert release["jobs"]["publish"]["needs"] == "build"
    runs = [step["run"] for _, step in workflows.steps(release) if "run" in step]
    assert runs == ['make release-check ARGS="--tag $TAG"']
    (uploaded,) = [
        step["with"]["path"].split()
        for _, step in workflows.steps(release)
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert {Path(path).parent.as_posix() for path in uploaded} == {"build/release/here"}


def test_the_targets_exist(workflow: dict[str, Any]) -> None:
    for target in workflows.targets(workflow):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_what_ci_runs_is_run() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    wanted = re.findall(r"^ *make (?!-j)(.+?)(?: \|\| .*)?$", script, re.MULTILINE)
    assert wanted == ["lint", "docs ARGS=--once", "test-all"]
    jobs = the("tests")["jobs"]
    lint = [step["run"] for step in jobs["lint"]["steps"] if "run" in step]
    assert lint == ["make lint", "make docs ARGS=--once"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["include"] == [{"target": "test"}, {"target": "test-all", "python": "3.12"}]
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == [
        'make "$TARGET" "PART=$PART"'
    ]


def test_the_parts_are_all_folders_of_tests_each_once() -> None:
    parts = the("tests")["jobs"]["test"]["strategy"]["matrix"]["part"]
    told = [f"--eval=told: ; @echo $({part})" for part in parts]
    run = [machine.run("make", "--no-print-directory", each, "told").split() for each in told]
    found = [folder for each in run for folder in each]
    folders = {path for path in (ROOT / "tests").iterdir() if path.is_dir()}
    wanted = {path.relative_to(ROOT).as_posix() for path in folders} - {"tests/__pycache__"}
    assert sorted(found) == sorted(wanted)


def test_the_tests_run_on_each_supported_python() -> None:
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    assert the("tests")["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


def test_forms_ask_for_what_they_need() -> None:
    assert [path.stem for path in FORMS] == ["bug", "config", "question"]
    for path in FORMS:
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.stem == "config":
            assert form["blank_issues_enabled"] is False
            (link,) = form["contact_links"]
            (repository,) = re.findall(r'^Repository = "(.*)"$', PROJECT, re.MULTILINE)
            assert link["url"] == f"{repository}/security/advisories/new"
            continue
        ids = [one["id"] for one in form["body"] if one["type"] != "markdown"]
        assert len(ids) == len(set(ids))
        assert any(one.get("validations", {}).get("required") for one in form["body"])
