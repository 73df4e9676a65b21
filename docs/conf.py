"""The settings of the documentation site, which `make docs` builds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from docutils import nodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.util.nodes import make_refnode  # noqa: E402

from docs.extension.docstrings import as_rst  # noqa: E402
from docs.extension.links import with_repository_links  # noqa: E402
from docs.extension.public_names import learn, repeats, signature_of  # noqa: E402
from sparkinesis.public import __version__  # noqa: E402

_URL = re.search(
    r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
)
REPOSITORY = _URL[1] if _URL else "https://github.com/sparkinesis/sparkinesis"
"""Where links to sources and examples lead."""

PUBLIC_PAGES = ("sparkinesis", "sparkinesis.metrics", "sparkinesis.sinks", "sparkinesis.testing")
"""Modules of which `sparkinesis.public` says that they have the names."""

project = "sparkinesis"
author = "the authors of sparkinesis"
version = release = __version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["extension", "static"]
nitpicky = True
# "--" and quotes stay what they are: they may be typed.
smartquotes = False

myst_heading_anchors = 4

default_role = "py:obj"
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"sparkinesis {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
# A date would make each build another one.
html_last_updated_fmt = None


def _read_source(app: Sphinx, docname: str, content: list[str]) -> None:
    page = DOCS / f"{docname}.md"
    content[0] = with_repository_links(content[0], page, DOCS, REPOSITORY)


def _process_docstring(
    app: Sphinx, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    # A field of a named tuple without a text of its own has one of Python's.
    is_empty = bool(lines) and lines[0].startswith("Alias for field number")
    lines[:] = [] if is_empty else as_rst(lines)


def _process_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str
) -> tuple[str, None] | None:
    if signature is not None and what in {"class", "exception"} and isinstance(thing, type):
        return signature_of(thing), None
    return None


def _skip_member(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: Any
) -> bool | None:
    return True if repeats(thing) else None


_SEEMS_PUBLIC = re.compile(r"sparkinesis\.[\w.]+|[A-Z]\w+[a-z]\w*(\.\w+)?(\(\))?")


def _resolve(app: Sphinx, env: Any, node: Any, shown: nodes.Element) -> nodes.Element | None:
    """Find a name by its end, as docstrings and annotations refer to names of other modules.

    A text in backticks that is no name stays code, and an annotation that is no public name stays
    text. None, which is a warning: the text seems to be a public name.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removesuffix("()")
    known = env.domains["py"].objects
    found = {name for name in known if name == target or name.endswith(f".{target}")}
    if not found and target.startswith("sparkinesis."):
        found = {name for name in known if name.endswith(f".{target.rpartition('.')[2]}")}
    if len(found) == 1:
        (name,) = found
        place = known[name]
        return make_refnode(
            app.builder, node["refdoc"], place.docname, place.node_id, [shown], name
        )
    if node["reftype"] == "obj" and _SEEMS_PUBLIC.fullmatch(node["reftarget"]):
        return None
    return shown


def setup(app: Sphinx) -> None:
    for page in PUBLIC_PAGES:
        learn(page)
    app.connect("source-read", _read_source)
    app.connect("autodoc-process-docstring", _process_docstring)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-skip-member", _skip_member)
    app.connect("missing-reference", _resolve)
