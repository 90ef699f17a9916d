"""A process that looks into contents and bodies for this one: started when it is first needed, ended with this one.

It has no database and no connection but the one to its parent, and computes one request at a time. Python's lock and
its garbage collector are its own, its memory is bounded, and it gives way to other processes (`nice`). When its parent
is gone, in whatever way, the connection ends, and so does the process, in the middle of its work too. A caller that no
longer waits says so, and the work ends. A process that died is started again once for the same request.
"""

import gc
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.records import MaskingTooExpensive, MessageContent, ShownBody, View
from redrive.stores.search.content_checks import Check, CheckCancelled, CheckLimits, CheckResult, check_contents

SENT_BYTES_MAX = 256 << 10
"""Contents that are sent together, unless one alone is larger."""
MEMORY_BYTES_MAX = 1 << 30
"""Of address space. The values of a body of 4 MiB, which is the most, took up to 300 MB."""
NICE = 10
"""On a machine whose processors are all busy it gets a tenth of what another process gets."""
START_S_MAX = 30.0
SEND_S_MAX = 10.0
REPLY_S_MAX = 120.0
END_S_MAX = 5.0

_LOOK_S = 0.02
"""How often it is looked whether anybody still waits."""
_LENGTH = struct.Struct("!Q")
_OVER = None
_CODE = """\
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, whose end is ours
sys.path[:] = sys.argv[1:]
from redrive.stores.search.filter_process import serve
serve()
"""


class ProcessDied(Exception):
    """It died twice of the same request."""


class _Gone(Exception):
    """The other end of the connection is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Show:
    """What of a body may be shown."""

    view: View
    body: bytes


class FilterProcess:
    """The parent's end. For one thread at a time."""

    def __init__(self, python: str | None = None) -> None:
        self._python = sys.executable if python is None else python
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, where there is one."""
        return None if self._process is None else self._process.pid

    def check_contents(
        self,
        contents: Sequence[MessageContent | None],
        checks: tuple[Check, ...],
        limits: CheckLimits,
        is_over: Callable[[], bool],
    ) -> CheckResult:
        """As `content_checks.check_contents` does. Raises CheckCancelled, ProcessDied, MemoryError; OSError where no
        process can be started."""
        answers: list[bool] = []
        cost = 0
        while len(answers) < len(contents) and cost < limits.piece_cost:
            some = _sent_together(contents, len(answers))
            left = CheckLimits(piece_cost=limits.piece_cost - cost, letter_cost=limits.letter_cost)
            looked = self._ask((some, checks, left), is_over)
            assert isinstance(looked, CheckResult)
            answers += looked.answers
            cost += looked.cost
            if looked.is_letter_too_expensive:
                return CheckResult(answers=answers, cost=cost, is_letter_too_expensive=True)
        return CheckResult(answers=answers, cost=cost)

    def show_body(self, view: View, body: bytes, is_over: Callable[[], bool]) -> ShownBody:
        """As `View.show_body` does. Raises MaskingTooExpensive too, and as `check_contents` does."""
        shown = self._ask(_Show(view=view, body=body), is_over)
        assert isinstance(shown, ShownBody)
        return shown

    def close(self) -> None:
        """Ends the process and waits for that. The next request starts another one."""
        connection, process = self._connection, self._process
        self._connection = self._process = None
        if connection is not None:
            connection.close()
        if process is None:
            return
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, request: Any, is_over: Callable[[], bool]) -> CheckResult | ShownBody:
        for _ in range(2):
            connection = self._connection or self._start()
            try:
                connection.settimeout(SEND_S_MAX)
                _send(connection, request)
                reply = self._wait_reply(connection, is_over)
            except (_Gone, OSError):
                self._kill()
                continue
            if isinstance(reply, CheckResult | ShownBody):
                return reply
            raise reply
        raise ProcessDied

    def _start(self) -> socket.socket:
        """A process that is ready. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # It stays in the session: with a session of its own it would not give way, where the scheduler shares
                # the processors out among sessions first.
                self._process = subprocess.Popen(
                    [self._python, "-c", _CODE, *sys.path],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            ours.settimeout(START_S_MAX)
            if _receive(ours) != "ready":
                raise _Gone
        except (_Gone, OSError) as error:
            ours.close()
            self._kill()
            raise OSError("the process that looks into contents could not be started") from error
        self._connection = ours
        return ours

    def _wait_reply(self, connection: socket.socket, is_over: Callable[[], bool]) -> Any:
        """Its answer, which it also gives when it is told that nobody waits: one for each request."""
        until_s, is_told = time.monotonic() + REPLY_S_MAX, False
        while not select.select([connection], [], [], _LOOK_S)[0]:
            if not is_told and is_over():
                _send(connection, _OVER)
                until_s, is_told = time.monotonic() + END_S_MAX, True
            if time.monotonic() > until_s:
                self._kill()
                raise CheckCancelled if is_told else _Gone
        return _receive(connection)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self.close()


def serve() -> None:
    """The process itself: one request after the other, until the parent is gone."""
    connection = socket.socket(fileno=0)
    _be_modest()
    is_over = _Told(connection)
    try:
        _send(connection, "ready")
        while True:
            request = _receive(connection)
            if request is _OVER:
                continue  # the answer was on its way already
            _send(connection, _reply(request, is_over))
            del request
            gc.collect()
    except (_Gone, OSError):
        return


class _Told:
    """Whether the parent has said that nobody waits. Ends the process when the parent is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __call__(self) -> bool:
        if not select.select([self._connection], [], [], 0)[0]:
            return False
        try:
            return _receive(self._connection) is _OVER
        except (_Gone, OSError):
            os._exit(0)


def _reply(request: Any, is_over: Callable[[], bool]) -> CheckResult | ShownBody | Exception:
    def go_on() -> None:
        if is_over():
            raise CheckCancelled

    try:
        if isinstance(request, _Show):
            return request.view.show_body(request.body, go_on=go_on)
        contents, checks, limits = request
        return check_contents(contents, checks, limits, is_over)
    except (CheckCancelled, MaskingTooExpensive, MemoryError) as error:
        return type(error)()
    except Exception as error:  # noqa: BLE001  it is raised where it was asked for
        return RuntimeError(f"looking into contents: {error!r}")


def _be_modest() -> None:
    """Only now: to start takes a moment of a processor, and somebody waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    try:
        import resource  # not everywhere

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES_MAX, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    except (ImportError, ValueError, OSError):
        pass
    # Values of a body make no cycles, and one pass among a hundred thousand of them took up to 75 ms.
    gc.freeze()
    gc.disable()


def _sent_together(contents: Sequence[MessageContent | None], start: int) -> list[MessageContent | None]:
    total = 0
    some: list[MessageContent | None] = []
    for content in contents[start:]:
        total += 0 if content is None else len(content.body) + len(content.properties)
        if some and total > SENT_BYTES_MAX:
            break
        some.append(content)
    return some


def _send(connection: socket.socket, what: object) -> None:
    data = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def _receive(connection: socket.socket) -> Any:
    """Raises _Gone."""
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    return pickle.loads(_read(connection, length))


def _read(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    place = 0
    while place < length:
        count = connection.recv_into(view[place:])
        if not count:
            raise _Gone
        place += count
    return data
