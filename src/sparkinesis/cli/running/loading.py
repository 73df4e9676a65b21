"""Loads the application that ``MODULE:NAME`` names.

The errors of a user's code are shown without the frames of the commands that run it.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparkinesis.errors import OptionError, SparkinesisError

if TYPE_CHECKING:
    from sparkinesis.application import Application
    from sparkinesis.queue.application import QueueApplication

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
