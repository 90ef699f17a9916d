"""What the engine wants sent, in order: the only way anything leaves it.

    Deliver            a message for a consumer
    GetOk              the answer to basic.get
    Confirm            a publish is confirmed (basic.ack)
    ConfirmNack        a publish is refused (basic.nack)
    BasicReturn        a mandatory message had no route
    ConsumerCancelled  the broker cancels a consumer: its queue is gone, or it held a message too long
    ConsumerTimedOut   the consumer timeout closes a channel

Plain slotted classes built by position: a `Deliver` is made tens of thousands of times a second.
"""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from redrive.embedded.engine.amqp_errors import AmqpError
    from redrive.embedded.engine.channel_base import ChannelBase
    from redrive.embedded.engine.messages import Message


class Deliver:
    """basic.deliver."""

    __slots__ = ("channel", "consumer_tag", "delivery_tag", "header", "message", "redelivered")

    def __init__(
        self,
        channel: "ChannelBase",
        consumer_tag: str,
        delivery_tag: int,
        redelivered: bool,
        message: "Message",
        header: bytes,
    ) -> None:
        self.channel = channel
        self.consumer_tag = consumer_tag
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.message = message
        self.header = header


class GetOk:
    """basic.get-ok, with how many messages are left."""

    __slots__ = ("channel", "delivery_tag", "header", "left", "message", "redelivered")

    def __init__(
        self,
        channel: "ChannelBase",
        delivery_tag: int,
        redelivered: bool,
        message: "Message",
        header: bytes,
        left: int,
    ) -> None:
        self.channel = channel
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.message = message
        self.header = header
        self.left = left


class Confirm:
    """basic.ack for a publish."""

    __slots__ = ("channel", "number")

    def __init__(self, channel: "ChannelBase", number: int) -> None:
        self.channel = channel
        self.number = number


class ConfirmNack:
    """basic.nack for a publish."""

    __slots__ = ("channel", "number")

    def __init__(self, channel: "ChannelBase", number: int) -> None:
        self.channel = channel
        self.number = number


class BasicReturn:
    """basic.return."""

    __slots__ = ("channel", "message")

    def __init__(self, channel: "ChannelBase", message: "Message") -> None:
        self.channel = channel
        self.message = message


class ConsumerCancelled:
    """basic.cancel from the broker."""

    __slots__ = ("channel", "consumer_tag")

    def __init__(self, channel: "ChannelBase", consumer_tag: str) -> None:
        self.channel = channel
        self.consumer_tag = consumer_tag


class ConsumerTimedOut:
    """channel.close from the broker."""

    __slots__ = ("channel", "error")

    def __init__(self, channel: "ChannelBase", error: "AmqpError") -> None:
        self.channel = channel
        self.error = error


Effect: TypeAlias = Deliver | GetOk | Confirm | ConfirmNack | BasicReturn | ConsumerCancelled | ConsumerTimedOut
