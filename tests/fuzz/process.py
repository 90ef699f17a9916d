"""The process that one target is fuzzed in: `python -m tests.fuzz.process TARGET [libFuzzer options]`."""

import importlib
import sys
from typing import Any


def main(target: str, arguments: list[str]) -> None:
    """Become the fuzzer of one target; does not return."""
    # Not a dependency of the project, so looked up by name: type checks and imports work without it.
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["redrive.wire"]):
        targets = importlib.import_module("tests.fuzz.targets")
    atheris.Setup([target, *arguments], targets.TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
