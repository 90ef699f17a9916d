"""The errors that the broker answers with, in RabbitMQ's own words.

An `AmqpError` closes the channel, or with a hard code the connection, as AMQP 0-9-1 sorts them. The texts were read off
the three brokers; `resource` is how RabbitMQ names things in them: "queue 'orders' in vhost '/'".
"""

from redrive.core import RedriveError

NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
HARD = frozenset({320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541})
"""The codes that close the connection; all others close the channel."""


class AmqpError(RedriveError):
    """The broker refuses a command. `text` is what the client reads, the code's name in front."""

    def __init__(self, code: int, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code} {self.text}")

    @property
    def text(self) -> str:
        """As RabbitMQ writes it: "NOT_FOUND - no queue 'nope' in vhost '/'"."""
        return f"{NAMES[self.code]} - {self.reason}" if self.reason else NAMES[self.code]

    @property
    def is_hard(self) -> bool:
        """Whether it closes the connection, not only the channel."""
        return self.code in HARD


def resource(kind: str, name: str, vhost: str) -> str:
    """A thing as RabbitMQ names it."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def not_found(kind: str, name: str, vhost: str) -> AmqpError:
    """404 for a queue or an exchange."""
    return AmqpError(404, f"no {resource(kind, name, vhost)}")


def precondition(reason: str) -> AmqpError:
    """406."""
    return AmqpError(406, reason)


def access_refused(reason: str) -> AmqpError:
    """403."""
    return AmqpError(403, reason)


def locked(name: str, vhost: str) -> AmqpError:
    """405: the queue is another connection's, or its exclusiveness differs."""
    return AmqpError(
        405,
        f"cannot obtain exclusive access to locked {resource('queue', name, vhost)}. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original declaration.",
    )


def default_exchange() -> AmqpError:
    """403: nothing can be done to the nameless exchange."""
    return access_refused("operation not permitted on the default exchange")


def unsupported(what: str) -> AmqpError:
    """540 for what RabbitMQ can do and the embedded broker can't: reported, never ignored."""
    return AmqpError(540, f"the embedded broker does not support {what}; use a real RabbitMQ for it")
