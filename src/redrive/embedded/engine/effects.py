"""What the engine wants done, in the order it wants it: the only way anything leaves it.

    Deliver   a message for a consumer          Got        the answer to basic.get
    Confirm   a publish is taken                Refused    a publish is refused (basic.nack)
    Return    a mandatory message had no route  Cancelled  the broker ends a consumer (its queue is gone, or it held
    TimedOut  a channel held a message too long            a message too long)

Plain slotted classes built by position: a `Deliver` is made tens of thousands of times a second.
"""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from redrive.embedded.engine.channel_state import ChannelState
    from redrive.embedded.engine.messages import Message
    from redrive.embedded.engine.refusals import Refusal


class Deliver:
    """basic.deliver."""

    __slots__ = ("channel", "consumer_tag", "delivery_tag", "header", "message", "redelivered")

    def __init__(
        self,
        channel: "ChannelState",
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


class Got:
    """basic.get-ok, with how many messages are left."""

    __slots__ = ("channel", "delivery_tag", "header", "left", "message", "redelivered")

    def __init__(
        self,
        channel: "ChannelState",
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

    def __init__(self, channel: "ChannelState", number: int) -> None:
        self.channel = channel
        self.number = number


class Refused:
    """basic.nack for a publish."""

    __slots__ = ("channel", "number")

    def __init__(self, channel: "ChannelState", number: int) -> None:
        self.channel = channel
        self.number = number


class Return:
    """basic.return."""

    __slots__ = ("channel", "message")

    def __init__(self, channel: "ChannelState", message: "Message") -> None:
        self.channel = channel
        self.message = message


class Cancelled:
    """basic.cancel from the broker."""

    __slots__ = ("channel", "consumer_tag")

    def __init__(self, channel: "ChannelState", consumer_tag: str) -> None:
        self.channel = channel
        self.consumer_tag = consumer_tag


class TimedOut:
    """channel.close from the broker."""

    __slots__ = ("channel", "refusal")

    def __init__(self, channel: "ChannelState", refusal: "Refusal") -> None:
        self.channel = channel
        self.refusal = refusal


Effect: TypeAlias = Deliver | Got | Confirm | Refused | Return | Cancelled | TimedOut
