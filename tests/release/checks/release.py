"""The checks of a release, in their order: each uses what those before it have made."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from sparkinesis.public import __version__
from tests.release import changelog, golden
from tests.release.checks import contents, description, installed, machine, types, workflows
from tests.release.checks.building import Built, build, clone, difference_problems
from tests.release.checks.check import Check, CheckError, require
from tests.release.formats import FORMATS


class Release:
    """The release of the present version; ``tag``: the tag that publishes it, or None."""

    def __init__(self, tag: str | None = None) -> None:
        self.tag = tag

    @property
    def checks(self) -> list[Check]:
        return [
            Check("version", self._version),
            Check("changelog", self._changelog),
            Check("golden files", self._golden),
            Check("workflows", self._workflows),
            Check("build", self._build),
            Check("same bytes", self._same_bytes),
            Check("wheel", self._wheel),
            Check("sdist", self._sdist),
            Check("metadata", self._metadata),
            Check("description", self._description),
            Check("install", lambda: installed.install(self._built.wheel)),
            Check("use", lambda: installed.use(__version__)),
            Check("types", lambda: types.verify(self._built.wheel)),
        ]

    def _version(self) -> str:
        if self.tag is not None and self.tag != f"v{__version__}":
            raise CheckError(
                f"the tag is {self.tag}, and src/sparkinesis/public.py says {__version__}"
            )
        return __version__ if self.tag is None else f"{__version__}, tagged {self.tag}"

    def _changelog(self) -> str:
        text = changelog.CHANGELOG.read_text("utf-8")
        require(changelog.problems(text, __version__, must_be_released=self.tag is not None))
        day = changelog.dates(text)[__version__]
        return f"[{__version__}] of {day}" if day else f"[{__version__}], which has no date yet"

    def _golden(self) -> str:
        known = [version for version, _ in golden.files()]
        for form in FORMATS:
            version = golden.newest(form)
            if version is None or golden.text_of(form) != golden.stored_text(version, form):
                raise CheckError(
                    f"{form.name} has another form: pytest tests/release says what to do"
                )
        return f"{len(FORMATS)} formats, of versions {', '.join(dict.fromkeys(known))}"

    def _workflows(self) -> str:
        return workflows.check()

    @cached_property
    def _built(self) -> Built:
        return build(machine.ROOT, machine.FOLDER / "here")

    def _build(self) -> str:
        sizes = [f"{path.name} ({_kib(path)})" for path in (self._built.wheel, self._built.sdist)]
        return ", ".join(sizes)

    def _same_bytes(self) -> str:
        # Whatever a build may depend on is another one: folder, time zone, order of sets.
        source = clone(machine.FOLDER / "clone")
        other = build(source, machine.FOLDER / "there", TZ="Asia/Tokyo", PYTHONHASHSEED="1")
        require(difference_problems(self._built.digests(), other.digests(), machine.changed()))
        return "as built in a clone of the last commit"

    def _wheel(self) -> str:
        given = ("--no-config", "--src-dir", machine.ROOT / "src", self._built.wheel)
        machine.tool("check-wheel-contents", "check-wheel-contents", *given)
        names = self._built.wheel_names
        require(contents.wheel_problems(names))
        return f"{len(names)} files: {_endings(names)}"

    def _sdist(self) -> str:
        names = self._built.sdist_names
        require(contents.sdist_problems(names, machine.tracked(), __version__))
        return f"{len(names)} files: {_endings(names)}"

    def _metadata(self) -> str:
        metadata = self._built.metadata
        expected = {"Name": "sparkinesis", "Version": __version__}
        require(description.metadata_problems(metadata, expected))
        return ", ".join(f"{name} {url}" for name, url in description.urls_of(metadata).items())

    def _description(self) -> str:
        machine.tool("twine", "twine", "check", "--strict", self._built.wheel, self._built.sdist)
        text = str(self._built.metadata.get_payload())
        repository = description.urls_of(self._built.metadata)["Repository"]
        require(description.link_problems(text, repository, __version__))
        readme = (machine.ROOT / "README.md").read_text("utf-8")
        require(description.block_problems(text, readme))
        paths = description.paths_in_repository(text, repository, __version__)
        require(f"there is no {path}" for path in paths if not (machine.ROOT / path).exists())
        return f"renders, with {len(description.links(text))} links, {len(paths)} of them to files"


def _kib(path: Path) -> str:
    return f"{path.stat().st_size / 1024:,.0f} KiB"


def _endings(names: list[str]) -> str:
    counts: dict[str, int] = {}
    for name in names:
        ending = Path(name).suffix or Path(name).name
        counts[ending] = counts.get(ending, 0) + 1
    return ", ".join(
        f"{count} {ending}" for ending, count in sorted(counts.items(), key=lambda one: -one[1])
    )
