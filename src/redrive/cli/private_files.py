"""Files that only their owner may read: payloads, audits, tokens."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from redrive.cli.text_tables import printable
from redrive.core import UnreadableFile

PRIVATE = 0o600


@contextmanager
def writing_private(output: str) -> Iterator[BinaryIO]:
    """A file that only its owner may read, whatever the umask; it gets its name when it is complete and on the disk.
    Raises `UnreadableFile`."""
    path = Path(output)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # dead letters that were exported may be deleted next
        part.replace(path)
    except OSError as error:
        reason = f"can't be written: {error.strerror or error}"
        raise UnreadableFile(path=printable(output), reason=reason, hint="name another file") from None
    finally:
        part.unlink(missing_ok=True)
