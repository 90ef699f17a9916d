"""What an app can be refused with, and what its handlers may have to catch.

RedriveError
└── AppError
    ├── InvalidApp            the author: a handler, option or declaration that can't be used; nothing has run
    ├── UnsupportedBroker     the operator: this broker lacks what the declaration needs
    ├── TopologyMissing       the operator: a queue is not declared, and the app was told not to wait for it
    └── PublishFailed         the environment: a handler's publish was not confirmed; raised inside the handler
"""

from redrive.client import Confirmed, InDoubt, Nacked, Returned
from redrive.client import Outcome as PublishOutcome
from redrive.core import RedriveError


class AppError(RedriveError):
    """The root of the errors of the consumer runtime."""


class InvalidApp(AppError):
    """An app can't be run as it is written; `problems` has one sentence for each reason."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class UnsupportedBroker(AppError):
    """The broker lacks what a shape needs."""


class TopologyMissing(AppError):
    """Queues or exchanges that the app needs do not exist."""

    def __init__(self, missing: tuple[str, ...], *, file: str = "FILE") -> None:
        self.missing = missing
        super().__init__(f"not declared on the broker: {', '.join(missing)}; declare them with: redrive apply {file}")


class PublishFailed(AppError):
    """The broker has not confirmed a handler's publish; with `in_doubt` the message may have arrived all the same."""

    def __init__(self, exchange: str, routing_key: str, reason: str, *, in_doubt: bool) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.reason = reason
        self.in_doubt = in_doubt
        where = f"exchange {exchange!r} with key {routing_key!r}"
        super().__init__(f"a message to {where} was not confirmed: {reason}")


def describe_publish_outcome(outcome: PublishOutcome) -> str:
    """The outcome of a publish as text for logs and errors."""
    match outcome:
        case Confirmed():
            return "confirmed"
        case Returned(code=code, text=text):
            return f"no queue took it ({code} {text})"
        case Nacked():
            return "the broker refused it: a queue is full or failing"
        case InDoubt(reason=reason, sent=sent):
            return f"{'in doubt' if sent else 'not sent'}: {reason}"
