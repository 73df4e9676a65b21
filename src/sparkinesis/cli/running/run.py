"""`sparkinesis run`: runs the application of a module, until a signal ends it.

With ``--reload``, a process of its own runs the command anew whenever a Python file changes.

The errors of a user's code are shown without the frames of the commands that run it.
"""

from __future__ import annotations

import importlib
import os
import runpy
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sparkinesis.cli.command_options import errors_in_one_line
from sparkinesis.cli.running.log_lines import LogForm, LogLevel, set_up_logging
from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.worker.lifecycle.signals import SIGNALS, handling

if TYPE_CHECKING:
    from sparkinesis.application import Application
    from sparkinesis.queue.application import QueueApplication


@errors_in_one_line("run")
def run(
    *,
    path: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:APP",
            help="The module, and the name of its Application; MODULE alone means MODULE:app.",
        ),
    ],
    submit: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- SPARK_OPTIONS]", help="With --workers: options of spark-submit."
        ),
    ] = None,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Run N workers in processes of their own, or auto: one for each CPU. Default: "
            "one worker in this process.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST]:PORT",
            help="Answer /livez, /readyz, /status and /metrics there. Default: as the "
            "application's options say.",
        ),
    ] = None,
    log: Annotated[
        LogForm | None,
        typer.Option(
            metavar="text|json",
            help="The form of the log, on stderr. Default: text on a terminal, otherwise json.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", help="The level to log from: debug to error.")
    ] = LogLevel.INFO,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run a fleet of N workers on Spark's executors."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --workers: Spark's master, or sc://HOST of a Spark Connect server. Default: "
            "as Spark is configured.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="Start again when a Python file below the working directory changes; for "
            "development.",
        ),
    ] = False,
) -> None:
    """Run an application until SIGTERM or Ctrl-C, which end it gracefully; a second one at once.

    The application is a name in a module, such as app = Application(...) in flights.py, without
    .run(). The module is looked for in the working directory first.
    """
    if workers is None and (master is not None or submit):
        raise OptionError(
            f"{'--master' if master is not None else shlex.join(submit or [])} is for a fleet on "
            "Spark. Add --workers N, or leave it out."
        )
    if workers is not None and (processes is not None or reload):
        raise OptionError(
            f"--workers runs a fleet on Spark, and {'--reload' if reload else '--processes'} is "
            "for this machine. Leave one of them out."
        )
    if reload:
        command = [sys.executable, *(one for one in sys.argv if one != "--reload")]
        raise typer.Exit(_run_and_reload(command, Path.cwd(), _say))
    # Process 1 of a container ignores SIGTERM until it has a handler, and a start takes seconds.
    with handling(SIGNALS, _leave):
        _end_with_reloader()
        set_up_logging(log, log_level)

        application = load_application(path)
        if http is not None:
            options: Any = replace(application.options, http=http)
            application = replace(application, options=options)
        if processes is None and workers is None:
            application.run()
            return
        supervised: Any = application._supervised()
        if processes is not None:
            from sparkinesis.worker.supervision.processes import run_in_processes  # noqa: PLC0415

            count = int(processes) if processes.isdecimal() else processes
            run_in_processes(supervised, count, partial(set_up_logging, log, log_level))
        else:
            from sparkinesis.fleet.running import run_fleet  # noqa: PLC0415

            run_fleet(supervised, path.partition(":")[0], workers or 1, master, submit or [])


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    typer.echo(f"sparkinesis run: {text}", err=True)


_UNTIL_CLOSED = "SPARKINESIS_RELOADER"
"""The environment variable with the file descriptor that closes when the reloader dies."""
_LOOK_EVERY = 0.3
_NO_SOURCES = ("__pycache__", "node_modules", "site-packages")

Sources: TypeAlias = Mapping[str, tuple[int, int]]
"""The Python files below a folder, each with the time of its last change (ns) and its size."""


def _run_and_reload(
    command: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run ``command`` until it ends or a signal ends it; return its exit code.

    A change of a Python file below ``folder`` ends it by SIGTERM, and starts it again once it has
    ended. After a failure, the next change starts it again. Signals are passed on as they come. The
    command ends by SIGTERM if this process dies, see `end_with_reloader`.
    """
    signals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        signals.append(number)

    alive, closes = os.pipe()
    try:
        with handling(SIGNALS, note):
            while True:
                before = sources_below(folder)
                process = _start(command, alive)
                changed = None
                while process.poll() is None and not signals and changed is None:
                    sleep(_LOOK_EVERY)
                    changed = change(before, sources_below(folder))
                if changed is not None and process.poll() is None:
                    process.terminate()
                code = _end(process, signals, sleep)
                if signals or (changed is None and code == 0):
                    return code
                if changed is None:
                    say(f"The application ended with exit code {code}, and starts at a change.")
                while changed is None:
                    sleep(_LOOK_EVERY)
                    if signals:
                        return code
                    changed = change(before, sources_below(folder))
                say(f"{changed} has changed: the application starts again.")
    finally:
        os.close(closes)
        os.close(alive)


def _start(command: Sequence[str], alive: int) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C on the terminal reaches this process only, which passes it on.
    # The command would otherwise get it twice, and end at once.
    return subprocess.Popen(  # noqa: S603 - the user's own command line
        command,
        start_new_session=True,
        pass_fds=[alive],
        env={**os.environ, _UNTIL_CLOSED: str(alive)},
    )


def _end(
    process: subprocess.Popen[bytes], signals: Sequence[int], sleep: Callable[[float], None]
) -> int:
    """Wait for the end of the process, and pass signals on to it; return its exit code."""
    passed = 0
    while process.poll() is None:
        for number in signals[passed:]:
            process.send_signal(number)
            passed += 1
        sleep(_LOOK_EVERY)
    code = process.wait()
    return code if code >= 0 else 128 - code


def sources_below(folder: Path) -> Sources:
    """Return the Python files below a folder, without those of hidden folders and of packages."""
    return dict(_files(str(folder)))


def _files(folder: str) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # the folder has just been deleted
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NO_SOURCES:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, (found.st_mtime_ns, found.st_size)
        except OSError:  # deleted, as editors do for a moment
            continue


def change(before: Sources, after: Sources) -> str | None:
    """Return the name of a file that was changed, added or deleted; None if none was. Pure."""
    changed = sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
    return Path(changed[0]).name if changed else None


def _end_with_reloader() -> None:
    """Have this process shut down by SIGTERM when its reloader dies, if it has one."""
    descriptor = os.environ.pop(_UNTIL_CLOSED, None)
    if descriptor is None:
        return

    def wait() -> None:
        with os.fdopen(int(descriptor), "rb") as alive:
            alive.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-reloader", daemon=True).start()


_USUAL_NAME = "app"


def load_application(path: str) -> Application | QueueApplication:
    """Return the application that ``MODULE:NAME`` names; ``MODULE`` alone means ``MODULE:app``.

    The working directory is searched first, then the folders of Python.

    Raises `OptionError` if there is no such module, or no application of that name in it. Raises
    `UserModuleError` if the module itself raises.
    """
    from sparkinesis.application import Application  # noqa: PLC0415 - slow to import

    module_name, _, name = path.partition(":")
    names = module_name.split(".")
    if names[-1] == "py" or not all(one.isidentifier() for one in (*names, name or _USUAL_NAME)):
        raise OptionError(_malformed(path, module_name))
    module = _import(module_name)
    kinds: tuple[type[Any], ...] = (Application,)
    if (queues := sys.modules.get("sparkinesis.queue.application")) is not None:
        kinds += (queues.QueueApplication,)  # imported by the user's module, or it has none
    found = getattr(module, name or _USUAL_NAME, None)
    if isinstance(found, kinds):
        application: Application | QueueApplication = found
        return application
    applications = [key for key, one in vars(module).items() if isinstance(one, kinds)]
    what = f"{module_name}:{name or _USUAL_NAME} "
    if found is None:
        what += f"does not exist: the module {module_name} has no such name."
    else:
        what += f"is no Application, but of the type {type(found).__name__}."
    if applications:
        raise OptionError(
            f"{what} Use {' or '.join(f'{module_name}:{one}' for one in applications)}."
        )
    raise OptionError(
        f"{what} Define one at the module's top level: "
        f"{name or _USUAL_NAME} = Application(...), without .run()."
    )


def _malformed(path: str, module_name: str) -> str:
    text = f"{path!r} does not name an application. Use MODULE:NAME, such as "
    file = Path(module_name)
    if file.suffix == ".py":
        return f"{text}{'.'.join(file.with_suffix('').parts).lstrip('.')}:{_USUAL_NAME}."
    return f"{text}flights:{_USUAL_NAME} for app = Application(...) in flights.py."


def _import(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise OptionError(
                f"There is no module {error.name!r} in {folder}, and none where Python looks for "
                "modules. Change to the directory of the application, or set PYTHONPATH."
            ) from None
        raise user_error(f"The module {name} could not be imported:", error) from None
    except Exception as error:  # noqa: BLE001 - whatever the user's module raises
        raise user_error(f"The module {name} could not be imported:", error) from None


KCLPY = "amazon_kclpy"

_OURS = (
    str(Path(__file__).parent),
    os.path.dirname(importlib.__file__),  # noqa: PTH120 - as frames have it
    runpy.__file__,
    "<frozen ",
)
_PAGES = {"kcl_rs": "kcl-rs", "pyspark.streaming.kinesis": "dstreams"}
"""The pages for users of other libraries, by their modules."""


class UserModuleError(SparkinesisError):
    """The user's code raised; the text has its traceback, or says what to change."""


def user_error(what: str, error: BaseException) -> UserModuleError:
    """Return an error with ``what`` as its first line, and the user's part of the traceback.

    An import of another library of Kinesis becomes the import, or the page, that takes its place.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OURS)
    ]
    missing = (error.name or "") if isinstance(error, ImportError) else ""
    if missing.partition(".")[0] == KCLPY and frames:
        return UserModuleError(_of_kclpy(frames[-1]))
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    text = f"{what}\n{''.join(lines)}".rstrip()
    pages = [page for module, page in _PAGES.items() if f"{missing}.".startswith(f"{module}.")]
    if pages:
        text += f"\nWhat takes the place of {missing}: docs/coming-from/{pages[0]}.md."
    return UserModuleError(text)


def _of_kclpy(frame: traceback.FrameSummary) -> str:
    line = frame.line or ""
    return (
        f"{frame.filename}, line {frame.lineno}, imports {KCLPY}, which needs its Java daemon. "
        f"Change the imports to those of sparkinesis.compat.kclpy, here: "
        f"{line.replace(KCLPY, 'sparkinesis.compat.kclpy')}; and start the program by "
        "sparkinesis kclpy FILE.properties (docs/kclpy.md)."
    )
