"""IAM policies: the files are those of the table, and as IAM takes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.iam import POLICIES, WITHOUT_CALL, Policy, Resource, document

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "iam"


@pytest.mark.parametrize("only", ["iam", "rules"])
def test_the_files_are_what_the_script_makes(tmp_path: Path, only: str) -> None:
    command = [sys.executable, "-m", "deploy", "--to", str(tmp_path), "--only", only]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    made = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    for path in made:
        told = (ROOT / "deploy" / path).read_text()
        assert (tmp_path / path).read_text() == told, f"run python -m deploy --only {only}"
    names = {path.name for path in FOLDER.iterdir()} if only == "iam" else {"rules.yml"}
    assert {path.name for path in made} == names
    assert only != "iam" or names == {f"{policy.name}.json" for policy in POLICIES}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_policy_allows_single_actions_on_named_resources(policy: Policy) -> None:
    found = json.loads(document(policy))
    assert found["Version"] == "2012-10-17"
    sids = [statement["Sid"] for statement in found["Statement"]]
    assert len(set(sids)) == len(sids)
    for statement, grant in zip(found["Statement"], policy.grants, strict=True):
        assert statement["Sid"].isalnum()
        assert not any("*" in action for action in statement["Action"])
        assert (statement["Resource"] == "*") == (grant.on is Resource.ANY)
        services = {action.partition(":")[0] for action in statement["Action"]}
        assert grant.on is Resource.ANY or services == {grant.on.value.split(":")[2]}
    assert len(document(policy)) < 6144, "the quota of a managed policy"


def test_each_policy_is_on_the_page() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    for policy in POLICIES:
        row = f"| [{policy.name}.json](../deploy/iam/{policy.name}.json) | {policy.purpose} |"
        assert row in page, row


def test_permissions_without_a_call_are_in_the_table() -> None:
    assert set(WITHOUT_CALL) <= {action for policy in POLICIES for action in policy.actions}
