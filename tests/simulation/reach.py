"""Finds the threads, locks and queues of the package that the simulation cannot replace.

`primitives` replaces five names that a module imports at its top: ``threading``, ``queue``,
``asyncio``, and ``Future`` and ``ThreadPoolExecutor`` of `concurrent.futures`. Everything else
stays real in a simulated world, and whoever waits for a real lock there waits for ever.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "sparkinesis"

REPLACED = {
    "asyncio": "asyncio",
    "queue": "queue",
    "threading": "threading",
    "concurrent.futures.Future": "Future",
    "concurrent.futures.ThreadPoolExecutor": "ThreadPoolExecutor",
}
"""Imports at a module's top that the simulation replaces, and their names in the module."""

_PACKAGES = {
    "_thread",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "queue",
    "selectors",
    "socketserver",
    "threading",
}

NEVER_SIMULATED = ("local/",)
"""The local Kinesis serves simulated worlds without its server: each call is one step."""

_FLEET = "No simulation hosts a fleet: it needs sockets and Spark's jobs."

_PROCESSES = "A simulated worker has no process of its own."

_LOOP = "A simulated program has no event loop of its own, and its types alone start none."

_ERROR = "An error's class starts no thread."

_EXPORTERS = "Simulated workers have no exporters, but metrics in memory."

_COMMANDS = "The commands tail and put are no part of a simulated world."
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("fleet/control_server.py", "selectors"): _FLEET,
    ("stream/fan_out/current_subscription.py", "selectors"): (
        "Simulated worlds have connections without sockets, and a watch of their own."
    ),
    ("worker/supervision/hosted_worker.py", "queue"): _FLEET,
    ("worker/supervision/supervisor.py", "queue"): _FLEET,
    ("fleet/control_server.py", "threading.Lock at import"): _FLEET,
    **dict.fromkeys(
        (
            (
                "worker/supervision/worker_process.py",
                "multiprocessing.connection.Connection",
            ),
            ("worker/supervision/process_launcher.py", "multiprocessing"),
            (
                "worker/supervision/process_launcher.py",
                "multiprocessing.connection.Connection",
            ),
            ("worker/supervision/process_launcher.py", "multiprocessing.connection.wait"),
            (
                "worker/supervision/process_launcher.py",
                "multiprocessing.context.SpawnProcess",
            ),
            (
                "worker/supervision/process_launcher.py",
                "multiprocessing.resource_tracker",
            ),
            (
                "worker/supervision/worker_process.py",
                "multiprocessing.connection.Connection",
            ),
        ),
        _PROCESSES,
    ),
    ("cli/streams/put.py", "queue"): _COMMANDS,
    ("stream/reading/following.py", "queue"): _COMMANDS,
    (
        "stream/kpl/envelope.py",
        "ThreadPoolExecutor",
    ): "Unpacking waits for nothing but the processor.",
    ("stream/calls/caller.py", "threading.Lock at import"): (
        "The lock guards the opening of clients, and simulated worlds open none."
    ),
    ("stream/calls/session.py", "threading.Lock at import"): (
        "The lock guards the opening of clients, and simulated worlds open none."
    ),
    ("source/reading/shard_reader.py", "threading.Lock at import"): (
        "The lock belongs to the machine's files; whoever holds it waits for no other thread."
    ),
    ("stream/reading/early_records.py", "threading.Lock at import"): (
        "The lock guards a set, and nothing waits while it is held."
    ),
    ("metrics/instruments.py", "threading.Lock at import"): _EXPORTERS,
    ("metrics/prometheus.py", "threading.Lock at import"): _EXPORTERS,
    ("metrics/health/pages.py", "socketserver"): "Simulated workers serve no HTTP.",
    **dict.fromkeys(
        (
            ("application.py", "asyncio in a block"),
            ("queue/application.py", "asyncio in a block"),
            ("worker/checkpointer.py", "asyncio in a block"),
            ("worker/lifecycle/batch_loop.py", "asyncio in a block"),
            ("worker/lifecycle/run_async.py", "asyncio"),
            ("worker/lifecycle/new_worker.py", "asyncio in a block"),
            ("worker/processors/user_calls.py", "asyncio in a block"),
        ),
        _LOOP,
    ),
    **dict.fromkeys(
        (
            ("queue/handling.py", "concurrent.futures.CancelledError"),
            ("worker/lifecycle/batch_loop.py", "concurrent.futures"),
            ("worker/lifecycle/batch_loop.py", "concurrent.futures.CancelledError"),
            ("worker/lifecycle/shard/concurrent_delivery.py", "concurrent.futures.CancelledError"),
            ("worker/lifecycle/shard/delivery.py", "concurrent.futures.CancelledError"),
            ("worker/processors/event_loop.py", "concurrent.futures.CancelledError"),
        ),
        _ERROR,
    ),
    ("ui/page_server.py", "asyncio"): "No page looks at a simulated world.",
    **{
        ("stream/putting.py", name): (
            "Simulated producers and dead-letter targets put records without a Putter."
        )
        for name in (
            "Future",
            *(
                f"concurrent.futures.{name}"
                for name in ("FIRST_COMPLETED", "CancelledError", "wait")
            ),
        )
    },
}
"""Uses of threads that stay real, and why that does no harm. By module and use."""


@dataclass(frozen=True)
class Use:
    """A module's import of something that has to do with threads, or a call made while it loads."""

    module: str
    """The path below the package."""
    name: str
    """A name in the module if the simulation replaces the use; otherwise what is used."""
    is_replaced: bool


@functools.cache
def uses(root: Path = PACKAGE) -> tuple[Use, ...]:
    """All uses of threads in the package below ``root``."""
    found: list[Use] = []
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).as_posix()
        if not module.startswith(NEVER_SIMULATED):
            source = path.read_text(encoding="utf-8")
            if any(name in source for name in _PACKAGES):
                found += _uses_of(module, ast.parse(source))
    return tuple(found)


def out_of_reach(root: Path = PACKAGE) -> list[str]:
    """Uses of threads that stay real in a simulated world and are not among the exceptions."""
    return [
        f"{use.module}: {use.name}"
        for use in uses(root)
        if not use.is_replaced and (use.module, use.name) not in EXCEPTIONS
    ]


def _uses_of(module: str, tree: ast.Module) -> Iterator[Use]:
    for node in ast.walk(tree):
        for alias, name in _imported(node):
            if name.split(".")[0] in _PACKAGES:
                is_at_the_top = node in tree.body and alias.asname is None
                if is_at_the_top and name in REPLACED:
                    in_module = REPLACED[name]
                    is_excepted = (module, in_module) in EXCEPTIONS
                    yield Use(module, in_module, not is_excepted)
                else:
                    where = "" if node in tree.body else " in a block"
                    renamed = "" if alias.asname is None else f" as {alias.asname}"
                    yield Use(module, f"{name}{renamed}{where}", False)
    for expression in _evaluated_at_import(tree):
        for node in ast.walk(expression):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "threading":
                yield Use(module, f"threading.{node.attr} at import", False)
            if isinstance(node, ast.Name) and node.id == "ThreadPoolExecutor":
                yield Use(module, "ThreadPoolExecutor at import", False)


def _imported(node: ast.AST) -> Iterator[tuple[ast.alias, str]]:
    """Each name that a statement imports, in full."""
    if isinstance(node, ast.Import):
        yield from ((alias, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((alias, f"{node.module}.{alias.name}") for alias in node.names)


def _evaluated_at_import(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that loading a module evaluates: no bodies of functions, no annotations."""
    if isinstance(node, ast.expr):
        yield node
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        yield from (one for one in (*defaults, *node.decorator_list) if one is not None)
        return
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield node.value
        return
    for child in ast.iter_child_nodes(node):
        yield from _evaluated_at_import(child)
