"""Reads FILE: a `redrive.yaml` or a definitions.json, distinguished by its name, else by its content."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from redrive.core import Finding, InvalidDefinitions, UnreadableFile
from redrive.topology import (
    Compiled,
    RetryRoutes,
    Topology,
    compile_declaration,
    parse_definitions,
    read_declaration,
)

_SIZE_MAX = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A topology from a file; `compiled`, `broker` and `database` only where it is a declaration."""

    topology: Topology
    retry_routes: tuple[RetryRoutes, ...] = ()
    warnings: tuple[Finding, ...] = ()
    compiled: Compiled | None = None
    broker: str | None = None
    database: str | None = None


def load_file(path: str) -> LoadedFile:
    """Reads and compiles FILE ("-" is stdin). Raises `UnreadableFile`, `InvalidDeclaration` or `InvalidDefinitions`."""
    text = read_text(path)
    file = "stdin" if path == "-" else path
    if _is_definitions(path, text):
        return _load_definitions(text, file)
    declaration = read_declaration(text, file=file)
    compiled = compile_declaration(declaration)
    return LoadedFile(
        topology=compiled.topology,
        retry_routes=compiled.retry_routes,
        warnings=compiled.warnings,
        compiled=compiled,
        broker=declaration.broker,
        database=declaration.database,
    )


def _load_definitions(text: str, file: str) -> LoadedFile:
    try:
        parsed = parse_definitions(text, file=file)
    except InvalidDefinitions as error:
        # A finding with a path instead of a line needs the name of its file.
        raise InvalidDefinitions([_named(one, file) for one in error.findings]) from None
    return LoadedFile(topology=parsed.topology, warnings=tuple(_named(one, file) for one in parsed.warnings))


def _named(finding: Finding, file: str) -> Finding:
    return finding if finding.position else replace(finding, address=f"{file}: {finding.address}")


def read_text(path: str, *, hint_if_missing: str = "write one with: redrive init") -> str:
    """The text of a file. Raises `UnreadableFile`."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else _read_bytes(path)
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise UnreadableFile(path=path, reason="there is no such file", hint=hint_if_missing) from None
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
