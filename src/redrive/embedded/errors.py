"""The errors of starting and using an embedded broker.

RedriveError
└── EmbeddedError
    ├── PortTaken        the port can't be listened on
    ├── UnknownProfile   there is no such version
    └── NotRunning       the broker was not started, or is stopped
"""

import errno
import os

from redrive.core import RedriveError, did_you_mean


class EmbeddedError(RedriveError):
    """The root of this room's errors."""


class PortTaken(EmbeddedError):
    """The port can't be listened on."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        self.host = host
        self.port = port
        # asyncio puts a sentence of its own around the system's; gaierror's numbers are not the system's.
        number = cause.errno or 0
        reason = os.strerror(number) if number > 0 else cause.strerror or str(cause)
        self.reason = reason[:1].lower() + reason[1:]
        if number == errno.EADDRINUSE:
            hint = "stop what runs there, or choose another port (0: any free one)"
        elif number > 0 and number != errno.EADDRNOTAVAIL:
            hint = "choose another port (0: any free one)"
        else:
            hint = "choose a host that is this machine's"
        super().__init__(f"can't listen on {host}:{port}: {self.reason}; {hint}")


class UnknownProfile(EmbeddedError):
    """No such profile."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        super().__init__(f"there is no profile {name!r}; {did_you_mean(name, known)}")


class NotRunning(EmbeddedError):
    """The broker is not running."""

    def __init__(self) -> None:
        super().__init__("the embedded broker is not running; use `async with EmbeddedBroker() as broker`")
