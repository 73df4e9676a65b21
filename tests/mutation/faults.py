"""The small faults that can be planted in a file of the package: what a tired developer writes.

Each is a change of one expression or statement: a comparison flipped or shifted, a condition
negated, an operand, an argument or a statement left out, a constant changed. Texts that people read
are left alone, as are types, decorators, imports and the order of locks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Fault:
    """A change of a file's text.

    where: the function or class, as a dotted name. before, after: what changes, on one line. start,
    end: the place in the file's bytes.
    """

    line: int
    where: str
    before: str
    after: str
    start: int
    end: int
    text: str

    def in_text(self, text: str) -> str:
        """Return the file's text with the fault."""
        source = text.encode()
        return (source[: self.start] + self.text.encode() + source[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.line} {self.where}: {self.before}  ->  {self.after}"


def faults_of(text: str) -> list[Fault]:
    """Return all faults of a file, in the order of its lines."""
    found = _Finder(text)
    found.visit_body(ast.parse(text).body, "", None)
    unique = {(one.start, one.end, one.text): one for one in found.faults}
    return sorted(unique.values(), key=lambda one: (one.line, one.start, one.end, one.text))


class _Finder:
    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self._begins = [0]
        for line in text.encode().splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    def visit_body(
        self,
        body: list[ast.stmt],
        where: str,
        bound: dict[str, int] | None,
        *,
        is_whole: bool = False,
    ) -> None:
        """Look at the statements of a block.

        bound: the lines where names are first bound; None outside of functions. is_whole: True if
        the block is a function's body, at whose end None is returned.
        """
        for n, statement in enumerate(body):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if is_text or isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert)):
                continue
            if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
                continue
            if isinstance(statement, (ast.ClassDef, *_FUNCTIONS)):
                self._visit_definition(statement, where)
                continue
            ends_function = is_whole and n == len(body) - 1 and isinstance(statement, ast.Return)
            if bound is not None and not ends_function and _can_be_left_out(statement, bound):
                self._note(statement, where, "pass")
            self._visit_statement(statement, where, bound)

    def _visit_definition(
        self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, where: str
    ) -> None:
        inner = f"{where}.{node.name}".lstrip(".")
        if isinstance(node, ast.ClassDef):
            self.visit_body(node.body, inner, None)
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            self._visit_all([default] if default else [], inner)
        bound = {one.arg: 0 for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                bound.setdefault(one.id, one.lineno)
        self.visit_body(node.body, inner, bound, is_whole=True)

    def _visit_statement(self, node: ast.stmt, where: str, bound: dict[str, int] | None) -> None:
        if isinstance(node, ast.Raise):
            return  # the error's text
        if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            return
        for part, other in _other_parts(node):
            self._note(part, where, f"({ast.unparse(other)})")
        if isinstance(node, ast.AugAssign) and type(node.op) in _COMPUTED:
            self._note(node, where, ast.unparse(_with(node, op=_COMPUTED[type(node.op)]())))
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            if name in {"body", "orelse", "finalbody"}:
                self.visit_body(values, where, bound)
            elif name == "handlers":
                for handler in values:
                    self.visit_body(handler.body, where, bound)
            elif name not in {"annotation", "target", "targets"}:
                self._visit_all((one for one in values if isinstance(one, ast.AST)), where)

    def _visit_all(self, nodes: Iterable[ast.AST], where: str) -> None:
        """Look at expressions and what is in them."""
        for node in nodes:
            if isinstance(node, ast.JoinedStr) or _is_for_people(node):
                continue
            if isinstance(node, ast.expr):
                for other in _others(node):
                    text = ast.unparse(other)
                    if text == ast.unparse(node):
                        continue
                    self._note(node, where, text if isinstance(node, ast.Slice) else f"({text})")
            self._visit_all(ast.iter_child_nodes(node), where)

    def _note(self, node: ast.expr | ast.stmt, where: str, text: str) -> None:
        start = self._begins[node.lineno - 1] + node.col_offset
        end = self._begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before = " ".join(ast.unparse(node).split())
        after = text[1:-1] if text.startswith("(") else text
        self.faults.append(Fault(node.lineno, where, before, after, start, end, text))


def _can_be_left_out(node: ast.stmt, bound: dict[str, int]) -> bool:
    """Return True if leaving a statement out is not noticed by the next name that is unknown."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [
            one
            for target in targets
            for one in ast.walk(target)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        ]
        return all(bound.get(one.id, one.lineno) < one.lineno for one in names)
    return isinstance(node, (ast.Expr, ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def _is_for_people(node: ast.AST) -> bool:
    """Return True for a line of the log, or the name of a type variable."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("_log.", "TypeVar"))


def _other_parts(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Return the expressions of a statement that may be another one, because of the statement."""
    if isinstance(node, ast.Return) and not isinstance(node.value, (ast.Constant, type(None))):
        yield node.value, ast.Constant(None)
    elif isinstance(node, (ast.If, ast.While)):
        for other in _negated(node.test):
            yield node.test, other


def _others(node: ast.expr) -> Iterator[ast.AST]:
    """Return what may stand in an expression's place."""
    find = _OTHERS.get(type(node))
    return iter(()) if find is None else find(node)


def _other_comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for n, operator in enumerate(node.ops):
        for kind in _COMPARED[type(operator)]:
            yield _with(node, ops=[*node.ops[:n], kind(), *node.ops[n + 1 :]])


def _other_conditions(node: ast.BoolOp) -> Iterator[ast.AST]:
    for n in range(len(node.values)):
        left = [*node.values[:n], *node.values[n + 1 :]]
        yield left[0] if len(left) == 1 else _with(node, values=left)
    yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _other_signs(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand


def _other_computations(node: ast.BinOp) -> Iterator[ast.AST]:
    if type(node.op) in _COMPUTED:
        yield _with(node, op=_COMPUTED[type(node.op)]())


def _other_choices(node: ast.IfExp) -> Iterator[ast.AST]:
    for other in _negated(node.test):
        yield _with(node, test=other)


def _other_slices(node: ast.Slice) -> Iterator[ast.AST]:
    for bound in ("lower", "upper"):
        if getattr(node, bound) is not None:
            yield _with(node, **{bound: None})


def _other_comprehensions(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
) -> Iterator[ast.AST]:
    for n, one in enumerate(node.generators):
        for m, condition in enumerate(one.ifs):
            for ifs in ([], *([other] for other in _negated(condition))):
                part = _with(one, ifs=[*one.ifs[:m], *ifs, *one.ifs[m + 1 :]])
                yield _with(
                    node, generators=[*node.generators[:n], part, *node.generators[n + 1 :]]
                )


def _negated(test: ast.expr) -> Iterator[ast.AST]:
    """Return a condition's reverse, unless a change within the condition makes the same."""
    is_changed = isinstance(test, ast.UnaryOp) or (
        isinstance(test, ast.Compare) and len(test.ops) == 1
    )
    if not is_changed:
        yield ast.UnaryOp(ast.Not(), test)


def _other_constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 if value else 1.0)
    elif isinstance(value, str) and " " not in value:
        yield ast.Constant(f"{value}x")
    elif isinstance(value, bytes):
        yield ast.Constant(value + b"x")


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    args = node.args
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield _with(node, func=ast.Name(_CALLED[node.func.id], ast.Load()))
    is_symmetric = isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}
    for n in range(0 if is_symmetric else len(args) - 1):
        yield _with(node, args=[*args[:n], args[n + 1], args[n], *args[n + 2 :]])
    for n, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield _with(node, keywords=[*node.keywords[:n], *node.keywords[n + 1 :]])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """Return a shallow copy of a node with other fields."""
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


_OTHERS: dict[type[ast.expr], Callable[[Any], Iterator[ast.AST]]] = {
    ast.BinOp: _other_computations,
    ast.BoolOp: _other_conditions,
    ast.Call: _other_calls,
    ast.Compare: _other_comparisons,
    ast.Constant: _other_constants,
    ast.DictComp: _other_comprehensions,
    ast.GeneratorExp: _other_comprehensions,
    ast.IfExp: _other_choices,
    ast.ListComp: _other_comprehensions,
    ast.SetComp: _other_comprehensions,
    ast.Slice: _other_slices,
    ast.UnaryOp: _other_signs,
}
