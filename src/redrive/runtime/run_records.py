"""Which messages a process has in its handlers, in a file that outlives it.

A process that ends by `os._exit`, a fault in a C library or SIGKILL can't log anything any more. So each keeps a small
file mapped into its memory: a slot for each run, written before the handler is called and cleared after it (about a
microsecond). After a crash the kernel still has the file, with the runs that had not ended. `WorkerProcesses` reads it
to log which messages these were, and whether the process had begun to consume at all.

The files of one user on one machine lie in one folder. So a process that gets a message again after its exclusive run
can look up what became of that run (`RunRecords.find_last_run`):

    no record names it                             unseen: another machine, or the folder is gone with its container
    it was received and had not begun              not begun
    it had begun, and SIGKILL came, or the connection was lost, or nobody knows how the process ended      stopped
    it had begun, and the process ended by itself, or its event loop was blocked                           its own crash

Nobody but the user may read the folder. Where none can be made, runs are not recorded and everything is "unseen".
"""

import asyncio
import hashlib
import json
import mmap
import os
import secrets
import signal
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from redrive import wire
from redrive.client import Delivery
from redrive.core import headers

RECORD_PATH = "REDRIVE_RUN_RECORD"
"""The environment variable with the path of a worker's record."""
LOGGED_MAX = 20
"""How many messages the log of a crash names."""

_MAGIC = b"redrive1"
_HEAD = struct.Struct("<8sIII")  # magic, pid, slots, bytes of queue names
_STARTED, _WATCHED, _ENDED, _EXIT, _EXCLUSIVE, _EXCLUSIVE_KEY = 20, 21, 22, 24, 28, 32
_KEY_BYTES = 16
_HELD, _HELD_COUNT = 64, 1024
_NAMES = _HELD + _HELD_COUNT * _KEY_BYTES
_SLOT = struct.Struct("<QQHBH3x")  # delivery tag, since when, queue, what follows, its length
_TAG = struct.Struct("<Q")
_SLOT_BYTES, _SLOTS_MAX = 512, 1024
_CONTENT = _SLOT.size
_CONTENT_BYTES = _SLOT_BYTES - _CONTENT
_IS_HEADER, _IS_ID = 0, 1
_WAITING, _BEGUN, _BLOCKED = 1, 2, 3
_STALE_S = 3600.0
_VERDICT_S, _LOOK_S = 2.0, 0.02
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class LastRun(Enum):
    """What is known of the exclusive run of a message that comes again."""

    UNSEEN = "unseen"
    NOT_BEGUN = "not begun"
    STOPPED = "stopped"
    ITS_OWN = "its own death"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRun:
    """A message whose handler had begun and not ended."""

    queue: str
    message_id: str | None
    delivery_tag: int
    ran_ms: int


def message_key(queue: str, message_id: str | None, body: bytes) -> bytes:
    """Identifies a message when it comes again."""
    digest = hashlib.blake2b(digest_size=_KEY_BYTES)
    for part in (queue, message_id or ""):
        encoded = part.encode("utf-8", "surrogateescape")
        digest.update(len(encoded).to_bytes(4))
        digest.update(encoded)
    digest.update(body)
    return digest.digest()


def delivery_key(queue: str, delivery: wire.ContentEvent) -> bytes:
    """The same for a delivery."""
    return message_key(queue, _id_of(delivery), delivery.body)


class RunRecord:
    """The record of this process, while it runs."""

    def __init__(self, path: Path, queues: Mapping[str, int], *, is_watched: bool = False) -> None:
        """`queues` has each queue's prefetch. `is_watched`: a parent process will record how this one ended. Raises
        OSError if the file can't be made."""
        names = json.dumps(list(queues)).encode()
        slots = max(1, min(sum(queues.values()), _SLOTS_MAX))
        base = _NAMES + len(names)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            # A write to space that the disk does not have would be a SIGBUS, so the space is allocated now.
            os.posix_fallocate(self._file, 0, base + slots * _SLOT_BYTES)
            self._memory = mmap.mmap(self._file, base + slots * _SLOT_BYTES)
            _lock(self._file)
        except BaseException:
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise
        self._queues = {name: index for index, name in enumerate(queues)}
        self._free = [base + slot * _SLOT_BYTES for slot in reversed(range(slots))]
        self._next_held = 0
        self._memory[_NAMES:base] = names
        self._memory[_WATCHED] = is_watched
        self._memory[: _HEAD.size] = _HEAD.pack(_MAGIC, os.getpid(), slots, len(names))

    def mark_started(self) -> None:
        """The process consumes: whatever ends it now, it had been able to begin."""
        self._memory[_STARTED] = 1

    def recorder(self, queue: str) -> tuple[Callable[[Delivery], int], Callable[[int], None]]:
        """`begin(delivery)` before a handler of this queue runs, `end(what begin returned)` after it."""
        memory, free, index = self._memory, self._free, self._queues[queue]
        take, put_back, now_ns, clear = self._free.pop, self._free.append, time.monotonic_ns, _TAG.pack_into
        # One call of C for each size of header; few sizes are common, and a slot has no room for larger ones.
        writers = [struct.Struct(f"{_SLOT.format}{size}s").pack_into for size in range(_CONTENT_BYTES + 1)]

        def begin(delivery: Delivery) -> int:
            if not free:
                return 0
            offset = take()
            content = delivery.header
            size = len(content)
            what = _IS_HEADER
            if size > _CONTENT_BYTES:
                content = (_id_of(delivery) or "").encode("utf-8", "surrogateescape")[:_CONTENT_BYTES]
                size = len(content)
                what = _IS_ID
            writers[size](memory, offset, delivery.delivery_tag, now_ns(), index, what, size, content)
            return offset

        def end(offset: int) -> None:
            if offset:
                clear(memory, offset, 0)
                put_back(offset)

        return begin, end

    def hold(self, key: bytes) -> None:
        """A message that needs an exclusive run was received, and its run has not begun."""
        at = _HELD + self._next_held * _KEY_BYTES
        self._memory[at : at + _KEY_BYTES] = key
        self._next_held = (self._next_held + 1) % _HELD_COUNT

    def wait_exclusive(self, key: bytes) -> None:
        """It gets the next exclusive run, and waits until all others have ended."""
        self._memory[_EXCLUSIVE_KEY : _EXCLUSIVE_KEY + _KEY_BYTES] = key
        self._memory[_EXCLUSIVE] = _WAITING

    def begin_exclusive(self, key: bytes) -> None:
        """Its exclusive run begins."""
        self._memory[_EXCLUSIVE_KEY : _EXCLUSIVE_KEY + _KEY_BYTES] = key
        self._memory[_EXCLUSIVE] = _BEGUN

    def end_exclusive(self) -> None:
        """Its exclusive run has ended, or will not take place now."""
        self._memory[_EXCLUSIVE] = 0

    def mark_blocked(self) -> None:
        """The exclusive run blocks the event loop for longer than the broker waits for a heartbeat."""
        if self._memory[_EXCLUSIVE] == _BEGUN:
            self._memory[_EXCLUSIVE] = _BLOCKED

    def close(self) -> None:
        """The process ends in order: its record is not needed."""
        self.path.unlink(missing_ok=True)
        os.close(self._file)  # the memory stays mapped: a handler's thread that can't be ended may still write there


class RunRecords:
    """The folder with the records of one user's processes on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def find(cls) -> "RunRecords | None":
        """The folder, made if need be; None if it can't be made, or if somebody else could read or change it."""
        if not hasattr(os, "getuid") or not hasattr(os, "posix_fallocate"):
            return None
        folder = Path(tempfile.gettempdir()) / f"redrive-{os.getuid()}"
        try:
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                pass
            found = os.lstat(folder)
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return None
        return cls(folder)

    def new_path(self) -> Path:
        """A path for the record of a process that is about to start."""
        return self.folder / f"run-{secrets.token_hex(8)}"

    def create(self, queues: Mapping[str, int], *, path: Path | None = None) -> RunRecord | None:
        """The record of this process, at `path` if a parent process chose one and watches it. None if it can't be
        made."""
        self._tidy()
        try:
            return RunRecord(self.new_path() if path is None else path, queues, is_watched=path is not None)
        except OSError:
            return None

    async def find_last_run(self, key: bytes) -> LastRun:
        """What is known here of the exclusive run of a message that comes again; forgotten once asked."""
        was_held = False
        for path in self._paths():
            try:
                head = _read(path, _NAMES)
            except OSError:
                continue
            if head[:8] != _MAGIC:
                continue
            if head[_EXCLUSIVE] and head[_EXCLUSIVE_KEY : _EXCLUSIVE_KEY + _KEY_BYTES] == key:
                last = await self._tell_end(path)
                _write(path, _EXCLUSIVE, b"\0")
                return last
            at = _find_key(head[_HELD:_NAMES], key)
            if at is not None:
                _write(path, _HELD + at, bytes(_KEY_BYTES))
                was_held = True
        return LastRun.NOT_BEGUN if was_held else LastRun.UNSEEN

    async def _tell_end(self, path: Path) -> LastRun:
        """How the process ended that had begun an exclusive run. Its parent may need a moment to record it."""
        for _ in range(round(_VERDICT_S / _LOOK_S)):
            try:
                head = _read(path, _HELD)
            except OSError:
                return LastRun.STOPPED
            if head[_EXCLUSIVE] == _WAITING:
                return LastRun.NOT_BEGUN
            if head[_EXCLUSIVE] == _BLOCKED:
                return LastRun.ITS_OWN
            if head[_ENDED]:
                (code,) = struct.unpack_from("<i", head, _EXIT)
                return LastRun.STOPPED if -code in _FROM_OUTSIDE else LastRun.ITS_OWN
            if not head[_WATCHED]:
                break
            await asyncio.sleep(_LOOK_S)
        return LastRun.STOPPED

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.folder.glob("run-*"))
        except OSError:
            return []

    def _tidy(self) -> None:
        """Deletes the records of processes that crashed long ago."""
        for path in self._paths():
            try:
                if time.time() - path.stat().st_mtime > _STALE_S and not _is_locked(path):
                    path.unlink(missing_ok=True)
            except OSError:
                pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """What the record of a crashed process says: whether it had begun to consume, and which runs had not ended, the
    latest first."""

    had_started: bool
    unfinished: tuple[UnfinishedRun, ...]


def read_crash_report(path: Path, *, code: int) -> CrashReport | None:
    """Reads the record of a process that has ended with this exit code, and records the code for `find_last_run`. None
    if there is no record."""
    try:
        _write(path, _EXIT, struct.pack("<i", code))
        _write(path, _ENDED, b"\1")
        data = path.read_bytes()
        magic, _pid, slots, names_size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            return None
        names: list[str] = json.loads(data[_NAMES : _NAMES + names_size])
        found = []
        for slot in range(slots):
            at = _NAMES + names_size + slot * _SLOT_BYTES
            tag, since_ns, queue, what, size = _SLOT.unpack_from(data, at)
            if tag:
                content = data[at + _CONTENT : at + _CONTENT + size]
                found.append((since_ns, names[queue], tag, _read_id(what, content)))
    except (OSError, ValueError, IndexError, struct.error):
        return None
    now_ns = time.monotonic_ns()
    unfinished = tuple(
        UnfinishedRun(queue=queue, message_id=id, delivery_tag=tag, ran_ms=max(now_ns - since_ns, 0) // 1_000_000)
        for since_ns, queue, tag, id in sorted(found, reverse=True, key=lambda one: one[0])
    )
    return CrashReport(had_started=bool(data[_STARTED]), unfinished=unfinished)


def _id_of(content: wire.ContentEvent) -> str | None:
    try:
        properties = content.properties
        own = properties.message_id
        given = properties.header(headers.MESSAGE_ID) if own is None else own
    except wire.ProtocolError:
        return None
    return given if isinstance(given, str) else None


def _read_id(what: int, content: bytes) -> str | None:
    if what == _IS_ID:
        return content.decode("utf-8", "surrogateescape") or None
    return _id_of(wire.Delivery(0, "", 0, False, ("", ""), content, b""))


def _find_key(keys: bytes, key: bytes) -> int | None:
    at = keys.find(key)
    while at >= 0:
        if at % _KEY_BYTES == 0:
            return at
        at = keys.find(key, at + 1)
    return None


def _read(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _write(path: Path, at: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.pwrite(descriptor, data, at)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    import fcntl  # not on every platform; without it nothing is recorded

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(path: Path) -> bool:
    """Whether its process is alive."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        _lock(descriptor)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
