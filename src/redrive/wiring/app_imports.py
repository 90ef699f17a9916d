"""Imports the app that `module:attribute` names. Errors in its author's module name their file and line."""

import importlib
import os
import sys
import traceback
from pathlib import Path, PurePath
from types import ModuleType

from redrive.core import InvalidInput, RedriveError, did_you_mean
from redrive.runtime import App, InvalidApp

_OURS = str(Path(__file__).parents[1]) + os.sep


def load_app(name: str) -> App:
    """The app that `module:attribute` names; modules are found from the working directory. Raises `InvalidApp`."""
    module_name, colon, attribute = name.partition(":")
    if module_name.endswith(".py"):
        path = PurePath(module_name.removesuffix(".py"))
        is_below = not path.is_absolute() and ".." not in path.parts
        written = f"{'.'.join(path.parts) if is_below else path.name}:{attribute or 'app'}"
        where = "" if is_below else ", from the folder that has it"
        raise InvalidApp(f"{module_name} is a file, and a module is needed; write {written}{where}")
    if not colon or not module_name or not attribute:
        raise InvalidApp(f"{name!r} names no app; write module:app, for example shop.orders:app")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _imported(module_name)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [key for key, value in vars(module).items() if isinstance(value, App)]
            hint = did_you_mean(part, apps) or "it has no App at all"
            raise InvalidApp(f"module {module_name} has no {attribute}; {hint}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise InvalidApp(f"{name} is a {type(found).__name__}, not an App")
    return found


def location_of(error: BaseException) -> str:
    """Where in its author's code an error was raised, as ` (shop.py, line 7)`; empty if that is not known."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_shown(error.filename)}, line {error.lineno})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _is_not_ours(one.filename)]
    # Prefer frames below the working directory, which the author wrote, to those of installed packages.
    own = [one for one in frames if "site-packages" not in Path(one.filename).parts and _is_below_here(one.filename)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f" ({_shown(frame.filename)}, line {frame.lineno})"


def _imported(name: str) -> ModuleType:
    # The author's code runs here and may raise anything.
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidApp(f"there is no module {name}; run it from the folder that has it") from None
        raise InvalidApp(f"module {name} can't be imported: {error}{location_of(error)}") from None
    except InvalidInput as error:
        raise InvalidApp("; ".join(one.text for one in error.findings) + location_of(error)) from None
    except RedriveError as error:
        raise InvalidApp(f"{error}{location_of(error)}") from None
    except SystemExit as error:
        reason = f"it ends the process with sys.exit({'' if error.code is None else repr(error.code)})"
        hint = 'a module that has an app must only define it; put the rest below `if __name__ == "__main__":`'
        raise InvalidApp(f"module {name} can't be imported: {reason}{location_of(error)}; {hint}") from None
    except Exception as error:
        reason = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        named = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise InvalidApp(f"module {name} can't be imported: {named}{location_of(error)}") from error


def _is_not_ours(filename: str) -> bool:
    return not filename.startswith((_OURS, "<frozen ")) and Path(filename) != Path(importlib.__file__)


def _is_below_here(filename: str) -> bool:
    return Path(filename).is_relative_to(Path.cwd())


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if _is_below_here(filename) else str(path)
