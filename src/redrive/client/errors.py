"""The errors of the AMQP client, split by what is still usable afterwards.

    RedriveError
    └── ClientError
        ├── InvalidUrl               the URL can't be used; nothing was tried
        ├── ConnectionFailed         no host could be connected to
        │   └── AuthenticationFailed     the broker refused the credentials, or the vhost to this user
        ├── ConnectionClosed         the connection is gone; every call on it ends with this
        ├── ChannelsExhausted        the connection has as many channels as were agreed; nothing was sent
        ├── ChannelClosed            one channel is gone, the connection can still be used
        │   ├── NotFound                 404: no such queue, exchange …
        │   ├── AccessRefused            403
        │   ├── ResourceLocked           405: another connection's exclusive queue
        │   └── PreconditionFailed       406: it exists with other arguments; an unknown delivery tag …
        ├── StaleDelivery            an ack, nack or reject for a delivery whose channel is gone; nothing was sent
        └── AlreadySettled           a second ack, nack or reject of one delivery; nothing was sent

Codes and texts are the broker's own.
"""

import re

from redrive.core import RedriveError

# Names may hold quotes themselves, so a name ends at a quote that something else follows.
_OBJECT = re.compile(r"\b(queue|exchange|vhost|consumer)(?: name)? '(.*?)'(?=[\s:.,;]|$)")


class ClientError(RedriveError):
    """The root of the AMQP client's errors."""


class InvalidUrl(ClientError):
    """An AMQP URL that can't be used; the message says why."""


class ConnectionFailed(ClientError):
    """No host could be connected to. `reasons` has one sentence for each host that was tried."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons) or "no host to connect to")


class AuthenticationFailed(ConnectionFailed):
    """The broker refused the credentials, or the vhost to this user."""


class ConnectionClosed(ClientError):
    """The connection is gone. `code` is the broker's, or None if it was lost without connection.close."""

    def __init__(self, text: str, code: int | None = None) -> None:
        self.code = code
        self.text = text
        super().__init__(_one_line(text) if code is None else f"{code} {_one_line(text)}")


class ChannelsExhausted(ClientError):
    """Every channel number of the connection is taken."""

    def __init__(self, channel_max: int) -> None:
        self.channel_max = channel_max
        super().__init__(
            f"all {channel_max} channels of the connection are in use; close some, use another client, or raise"
            " channel_max in the URL and on the broker"
        )


class ChannelClosed(ClientError):
    """The broker, or we, closed one channel. `object_kind` and `object_name` say what it was about, where known."""

    def __init__(self, code: int, text: str, *, object_kind: str = "", object_name: str = "") -> None:
        self.code = code
        self.text = text
        found = _OBJECT.search(text)
        self.object_kind = object_kind or (found[1] if found else "")
        self.object_name = object_name or (found[2] if found else "")
        super().__init__(f"{code} {_one_line(text)}")


class NotFound(ChannelClosed):
    """404: what was asked for does not exist, or is out of reach."""

    @property
    def is_out_of_reach(self) -> bool:
        """Whether it exists on a node that is down: `home node … of durable queue … is down or inaccessible`."""
        return "inaccessible" in self.text


class AccessRefused(ChannelClosed):
    """403: this user lacks the permission."""


class ResourceLocked(ChannelClosed):
    """405: it belongs to another connection."""


class PreconditionFailed(ChannelClosed):
    """406: it exists with other arguments, or the call does not fit its state."""


class StaleDelivery(ClientError):
    """An ack, nack or reject for a delivery whose channel is gone: nothing was sent, the broker delivers it again."""

    def __init__(self, delivery_tag: int, queue: str) -> None:
        self.delivery_tag = delivery_tag
        self.queue = queue
        super().__init__(
            f"delivery {delivery_tag} of queue {queue} can't be settled: its channel is gone; the broker has requeued"
            " the message and delivers it again"
        )


class AlreadySettled(ClientError):
    """A second ack, nack or reject of one delivery: nothing was sent."""

    def __init__(self, delivery_tag: int, queue: str) -> None:
        self.delivery_tag = delivery_tag
        self.queue = queue
        super().__init__(f"delivery {delivery_tag} of queue {queue} was settled before; settle each delivery once")


_BY_CODE: dict[int, type[ChannelClosed]] = {
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
}


def channel_closed(code: int, text: str) -> ChannelClosed:
    """The exception for a broker's channel.close."""
    return _BY_CODE.get(code, ChannelClosed)(code, text)


def _one_line(text: str) -> str:
    """Erlang terms in the broker's texts come pretty-printed over many lines."""
    return " ".join(text.split())
