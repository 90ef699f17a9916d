"""The declarations of `examples/`, compiled."""

from pathlib import Path

from redrive.topology import Compiled, compile_declaration, read_declaration

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = ("freeflow", "event-bus", "file-pipeline", "ratatoskr", "bookly", "ladder", "native")


def compiled(name: str) -> Compiled:
    """The example of this name."""
    file = EXAMPLES / name / "redrive.yaml"
    return compile_declaration(read_declaration(file.read_text(), file=str(file)))
