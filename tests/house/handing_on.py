"""The functions that only hand on: those that a reader could do without, and those in demand."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.house.modules import Module, attributes, is_docstring
from tests.house.public import PAGES

Function = ast.FunctionDef | ast.AsyncFunctionDef

_KINDS = {"classmethod", "property", "staticmethod"}
"""Decorators that add nothing of their own to a call."""
_PLAIN = {"Enum", "Generic", "NamedTuple", "Protocol", "TypedDict", "enum.Enum", "msgspec.Struct"}
"""Bases of other packages that call no method of a subclass by a name of its own."""


def handing_on(modules: Sequence[Module]) -> tuple[list[str], list[str]]:
    """Return the names of the functions that only hand on: first those that nothing demands.

    The others are in demand: Python calls them (dunder methods, callbacks, what a decorator wraps),
    a base class or a protocol has a method of the name, or users may call them.
    """
    classes = _Classes(modules)
    values = {module.name: _values(module.tree) for module in modules}
    public = classes.with_bases({name for module in modules for name in public_names(module)})
    found: tuple[list[str], list[str]] = ([], [])
    for module in modules:
        for owner, function in _functions(module.tree):
            if not only_hands_on(function):
                continue
            name, kinds = function.name, _decorators(function)
            is_demanded = name.startswith("__") or bool(kinds - _KINDS)
            if owner is None:
                used = set[str]().union(*(values[one] for one in (module.name, *module.importers)))
                is_demanded |= name in public | used or _is_found_by_name(name, module, values)
            else:
                is_demanded |= owner.name in public and not name.startswith("_")
                is_demanded |= f"self.{name}" in values[module.name] and "property" not in kinds
                is_demanded |= classes.demand(owner.name, name)
            place = module.name if owner is None else f"{module.name}.{owner.name}"
            found[is_demanded].append(f"{place}.{name}")
    return found


def only_hands_on(function: Function) -> bool:
    """Return True if the body is one call, of what has a name, by what the function was given.

    That is: by parameters, their attributes, and constants.
    """
    body = function.body
    if isinstance(body[0], ast.Expr) and is_docstring(body[0]):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    if isinstance(call, ast.Await | ast.YieldFrom):
        call = call.value
    if not isinstance(call, ast.Call) or not _dotted(call.func):
        return False
    given = function.args
    names = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    names |= {each.arg for each in (given.vararg, given.kwarg) if each is not None}
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    values = [each.value if isinstance(each, ast.Starred) else each for each in values]
    return all(
        isinstance(each, ast.Constant) or _dotted(each).partition(".")[0] in names
        for each in values
    )


class _Classes:
    """The classes of all modules, by name, and what they have from one another."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._bases: dict[str, set[str]] = defaultdict(set)
        self._members: dict[str, set[str]] = defaultdict(set)
        for module in modules:
            for node in module.classes():
                bases = (one.value if isinstance(one, ast.Subscript) else one for one in node.bases)
                self._bases[node.name] |= set(map(ast.unparse, bases))
                own = {one.name for one in node.body if isinstance(one, Function)}
                own |= {_dotted(one.targets[0]) for one in node.body if isinstance(one, ast.Assign)}
                self._members[node.name] |= own | attributes(node)
        protocols = (name for name, bases in self._bases.items() if "Protocol" in bases)
        # Another class may have a single name by chance.
        self._protocols = [name for name in protocols if len(self._members[name]) > 1]

    def with_bases(self, names: set[str]) -> set[str]:
        """Return the classes and all that they inherit from."""
        bases = {base for name in names for base in self._bases.get(name, ())}
        bases = {own if (own := base.rpartition(".")[2]) in self._bases else base for base in bases}
        return names if bases <= names else self.with_bases(names | bases)

    def demand(self, owner: str, name: str) -> bool:
        """Return True if another class is the reason why a method has its name."""
        line = self.with_bases({owner})
        foreign = line - self._bases.keys() - _PLAIN
        if not name.startswith("_") and any(not hasattr(builtins, base) for base in foreign):
            return True  # such as a method of asyncio.Protocol
        if any(name in self._members.get(one, ()) for one in line - {owner}):
            return True
        provided = {member for one in line for member in self._members.get(one, ())}
        return any(name in self._members[one] <= provided for one in self._protocols)


def _functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    """Yield all functions, each with the class whose method it is."""
    for owner in ast.walk(tree):
        for node in ast.iter_child_nodes(owner):
            if isinstance(node, Function):
                yield owner if isinstance(owner, ast.ClassDef) else None, node


def public_names(module: Module) -> Iterator[str]:
    """Yield the names that a module gives to users."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and _dotted(node.targets[0]) == "__all__":
            constants = (one for one in ast.walk(node.value) if isinstance(one, ast.Constant))
            yield from (str(one.value) for one in constants)
        elif isinstance(node, ast.ClassDef | Function) and (
            module.name in PAGES or any(one.startswith("public") for one in _decorators(node))
        ):
            yield node.name


def _is_found_by_name(name: str, module: Module, values: Mapping[str, set[str]]) -> bool:
    """Return True if an importer looks through a module, as a value, by ``inspect``."""
    whole = (values[one] for one in module.importers if "inspect" in values[one])
    return not name.startswith("_") and any(module.path.stem in names for names in whole)


def _decorators(node: ast.ClassDef | Function) -> set[str]:
    calls = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return {_dotted(one) for one in calls}


def _values(tree: ast.Module) -> set[str]:
    """Return the names whose value is used otherwise than by a call, such as those of callbacks."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    loads = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute))
    return {_dotted(node) for node in loads if id(node) not in called}


def _dotted(node: ast.expr) -> str:
    """Return a name such as ``self.table.name``; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
