"""What can go wrong with an embedded broker, for whoever starts one.

RedriveError
└── EmbeddedError
    ├── PortTaken        somebody listens on that port already
    ├── UnknownProfile   there is no such version here
    └── NotRunning       it was not started, or is stopped
"""

from redrive.core import RedriveError, did_you_mean


class EmbeddedError(RedriveError):
    """The root of this room's errors."""


class PortTaken(EmbeddedError):
    """The port can't be listened on."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(
            f"can't listen on {host}:{port}: {reason}; stop what runs there, or choose another port (0: any free one)"
        )


class UnknownProfile(EmbeddedError):
    """No such profile."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        super().__init__(f"there is no profile {name!r}; {did_you_mean(name, known)}")


class NotRunning(EmbeddedError):
    """The broker is not running."""

    def __init__(self) -> None:
        super().__init__("the embedded broker is not running; use `async with EmbeddedBroker() as broker`")
