"""FILE on the command line: a `redrive.yaml` or a definitions.json, told apart by name, else by content."""

import sys
from dataclasses import dataclass
from pathlib import Path

from redrive.core import Finding, UnreadableFile
from redrive.topology import (
    Arrangement,
    Compiled,
    Topology,
    compile_declaration,
    read_declaration,
    read_definitions,
)

_SIZE_MAX = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A topology from a file; `compiled` and `broker` only where it is a declaration."""

    topology: Topology
    arrangements: tuple[Arrangement, ...] = ()
    warnings: tuple[Finding, ...] = ()
    compiled: Compiled | None = None
    broker: str | None = None


def load(path: str) -> LoadedFile:
    """Reads and compiles FILE ("-" is stdin). Raises `UnreadableFile`, `InvalidDeclaration` or `InvalidDefinitions`."""
    text = read_text(path)
    file = "stdin" if path == "-" else path
    if _is_definitions(path, text):
        return LoadedFile(topology=read_definitions(text, file=file))
    declaration = read_declaration(text, file=file)
    compiled = compile_declaration(declaration)
    return LoadedFile(
        topology=compiled.topology,
        arrangements=compiled.arrangements,
        warnings=compiled.warnings,
        compiled=compiled,
        broker=declaration.broker,
    )


def read_text(path: str) -> str:
    """The text of a file. Raises `UnreadableFile`."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else _read_bytes(path)
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise UnreadableFile(path=path, reason="there is no such file", hint="write one with: redrive init") from None
    except IsADirectoryError:
        raise UnreadableFile(path=path, reason="is a folder", hint="name the file in it") from None
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start})"
        raise UnreadableFile(path=path, reason=reason, hint="save it as UTF-8") from None
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        raise UnreadableFile(path=path, reason=reason, hint="check its permissions") from None
    except ValueError:
        raise UnreadableFile(path=repr(path), reason="is no file name", hint="name a file") from None


def _read_bytes(path: str) -> bytes:
    with Path(path).open("rb") as file:
        data = file.read(_SIZE_MAX + 1)
    if len(data) > _SIZE_MAX:
        raise UnreadableFile(path=path, reason="is larger than 512 MiB", hint="name a topology file")
    return data


def _is_definitions(path: str, text: str) -> bool:
    suffix = Path(path).suffix.lower()
    if suffix in (".yaml", ".yml"):
        return False
    return suffix == ".json" or text.lstrip()[:2] in ("{\n", '{"', "{\r", "{ ", "{}")
