"""The modules below ``src``, as their text and their syntax show them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|fmt:|pragma)")


@dataclass
class Module:
    """One file. ``name`` is that of the import, without ``__init__``."""

    name: str
    path: Path
    text: str
    importers: set[str] = field(default_factory=set)
    """The names of the modules below ``src`` that import it."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def code_lines(self) -> int:
        """Lines with code: neither empty, nor only a comment or a part of a docstring."""
        code: set[int] = set()
        for token in self._tokens():
            if token.type != tokenize.COMMENT and token.type not in _LAYOUT:
                code.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and is_docstring(node):
                code.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
        return len(code)

    @cached_property
    def comment_lines(self) -> int:
        """Lines that are only a comment, and one for people."""
        return sum(
            token.type == tokenize.COMMENT
            and token.line.lstrip().startswith("#")
            and not _FOR_TOOLS.match(token.string)
            for token in self._tokens()
        )

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def _tokens(self) -> Iterator[tokenize.TokenInfo]:
        return tokenize.generate_tokens(io.StringIO(self.text).readline)


def read_modules(source: Path) -> list[Module]:
    """Return all modules below a folder, sorted, each with its importers."""
    found = [
        Module(_name_of(path.relative_to(source)), path, path.read_text("utf-8"))
        for path in sorted(source.rglob("*.py"))
    ]
    by_name = {module.name: module for module in found}
    for module in found:
        for name in _imports(module.tree):
            # `from a import b` names the module a.b, or the name b of the module a.
            imported = by_name.get(name) or by_name.get(name.rpartition(".")[0])
            if imported is not None and imported is not module:
                imported.importers.add(module.name)
    return found


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes of an instance: declared fields, and what methods assign to self."""
    found = {
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and "ClassVar" not in ast.unparse(statement.annotation)
    }
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            found.add(inner.attr)
    return found


def is_frozen(node: ast.ClassDef) -> bool:
    """Return True for a frozen dataclass or struct: an instance stays as it was made."""
    makers = (*node.decorator_list, node)
    given = (one for maker in makers for one in getattr(maker, "keywords", ()))
    return any(one.arg == "frozen" and ast.unparse(one.value) == "True" for one in given)


def is_docstring(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _name_of(path: Path) -> str:
    parts: Sequence[str] = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
