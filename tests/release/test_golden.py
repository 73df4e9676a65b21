"""What earlier versions have written is read, and what today's code writes is in a golden file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from sparkinesis.lease.assignment.coordinator_state import VersionRow
from sparkinesis.lease.assignment.worker_stats import WorkerStats
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import CONVERTED_TO, read_row
from sparkinesis.source.offsets import ANY_SHARD, from_json
from sparkinesis.stream.position import AfterRecord, Position, Sentinel
from tests.release import golden
from tests.release.formats import FORMATS, Format, coordination, items, leases, offsets

GOLDEN = [
    pytest.param(form, entry, id=f"{version} {form.name}: {name}")
    for version, form in golden.files()
    for name, entry in golden.entries_of(version, form).items()
]


@pytest.mark.parametrize(("form", "entry"), GOLDEN)
def test_what_a_version_wrote_is_read_as_that_version_read_it(
    form: Format, entry: dict[str, Any]
) -> None:
    now = form.read(entry["written"])
    assert golden.still_says(now, entry["read"]), f"{now} is not {entry['read']}"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_what_is_written_is_in_the_newest_golden_file(form: Format) -> None:
    version = golden.newest(form)
    assert version is not None, f"Run: python -m tests.release --write {golden.this_version()}"
    stored = {name: one["written"] for name, one in golden.entries_of(version, form).items()}
    # Today's code may not even read what it writes now.
    if form.write() != stored or golden.text_of(form) != golden.stored_text(version, form):
        pytest.fail(
            golden.ADVICE.format(name=form.name, version=version, this=golden.this_version())
        )


def test_no_golden_file_is_of_an_unknown_format_or_of_a_later_version() -> None:
    stored = {path for path in golden.FOLDER.rglob("*") if path.is_file()}
    known = {golden.path_of(*file) for file in golden.files()}
    assert stored == known
    assert all(re.fullmatch(r"\d+\.\d+", version) for version in golden.versions())
    assert golden.numbers(golden.versions()[-1]) <= golden.numbers(golden.this_version())


def test_each_part_of_a_position_is_in_a_golden_offset() -> None:
    """A new part needs an example, so that it has a golden form."""
    found: list[Position] = [
        position
        for offset in offsets.write().values()
        for shards in from_json(offset, offset).values()
        for position in shards.values()
    ]
    assert {one for one in found if isinstance(one, Sentinel)} == set(Sentinel)
    classes = {one for one in get_args(Position) if isinstance(one, type)}
    assert {type(one) for one in found} == classes | {Sentinel}
    records = [one for one in found if isinstance(one, AfterRecord)]
    parts = {name for one in records for name in _given(one)}
    assert parts == set(AfterRecord.__struct_fields__)
    assert any(ANY_SHARD in shards for each in offsets.write().values() for shards in each.values())


def test_each_field_of_a_lease_is_in_a_golden_row() -> None:
    rows = [items.from_json(item) for item in leases.write().values()]
    found = [lease for row in rows if isinstance(lease := read_row(row), Lease)]
    assert len(found) == len(rows)
    assert {name for one in found for name in _given(one)} == set(Lease.__struct_fields__)
    assert any(CONVERTED_TO in row for row in rows)


def test_each_field_of_the_rows_of_coordination_is_in_a_golden_row() -> None:
    read = [coordination.read(item) for item in coordination.write().values()]
    loads = [one["load"] for one in read if "load" in one]
    assert all(len(each) == len(WorkerStats.__struct_fields__) for each in loads)
    assert len(VersionRow.__struct_fields__) == 2
    assert [len(one["modes"]) for one in read if "modes" in one] == [2, 2]
    assert {one["lock"]["is_released"] for one in read if "lock" in one} == {False, True}


def _given(value: msgspec.Struct) -> set[str]:
    """The fields that do not have their defaults."""
    fields = msgspec.structs.fields(value)
    return {one.name for one in fields if getattr(value, one.name) != one.default}


def test_a_meaning_may_have_more_than_an_earlier_version_read_and_not_less() -> None:
    then = {"a": [{"b": 1}, None]}
    assert golden.still_says({"a": [{"b": 1, "new": 2}, None], "c": 3}, then)
    less: list[Any] = [{"a": [{"b": 2}, None]}, {"a": [{"b": 1}]}, {"a": [{}, None]}, {}, None]
    assert not any(golden.still_says(now, then) for now in less)


def test_another_version_than_the_packages_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    with pytest.raises(golden.GoldenError, match="so its forms belong to"):
        golden.write("99.0")
    assert list(tmp_path.iterdir()) == []


def test_a_released_version_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = golden.this_version()
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(f"## [Unreleased]\n\n## [{version}.0] - 2026-12-01\n")
    monkeypatch.setattr(golden, "CHANGELOG", changelog)
    with pytest.raises(golden.GoldenError, match=f"Version {version} is released"):
        golden.write(version)


def test_only_what_differs_from_an_earlier_version_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("## [Unreleased]\n")
    monkeypatch.setattr(golden, "CHANGELOG", changelog)
    monkeypatch.setattr(golden, "FOLDER", tmp_path / "golden")
    earlier, changed = FORMATS[0], FORMATS[1]
    for form, text in ((earlier, golden.text_of(earlier)), (changed, "{}\n")):
        path = golden.path_of("0.0", form)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = golden.write(golden.this_version())
    assert [path.stem for path in written] == [form.name for form in FORMATS if form is not earlier]
    assert golden.newest(earlier) == "0.0"
    assert golden.newest(changed) == golden.this_version()
