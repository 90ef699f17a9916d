"""What an app can be refused with, and what its handlers may have to catch.

RedriveError
└── AppError
    ├── InvalidApp            the author's: a handler, option or declaration that can't be used; nothing has run
    ├── UnsupportedBroker     the operator's: this broker can't do what the declaration asks for
    ├── TopologyMissing       the operator's: a queue is not declared, and the app was told not to wait
    └── PublishFailed         a handler's publish was not confirmed; raised inside the handler, which fails
"""

from redrive.core import RedriveError


class AppError(RedriveError):
    """The root of what the consumer runtime raises."""


class InvalidApp(AppError):
    """An app can't be run as it is written; `problems` has one sentence for each reason."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class UnsupportedBroker(AppError):
    """The broker lacks what a shape needs."""


class TopologyMissing(AppError):
    """Queues or exchanges the app needs do not exist."""

    def __init__(self, missing: tuple[str, ...], *, file: str = "FILE") -> None:
        self.missing = missing
        super().__init__(f"not declared on the broker: {', '.join(missing)}; declare them with: redrive apply {file}")


class PublishFailed(AppError):
    """A publish from a handler that the broker has not confirmed; with `in_doubt` it may have arrived all the same."""

    def __init__(self, exchange: str, routing_key: str, reason: str, *, in_doubt: bool) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.reason = reason
        self.in_doubt = in_doubt
        where = f"exchange {exchange!r} with key {routing_key!r}"
        super().__init__(f"a message to {where} was not confirmed: {reason}")
