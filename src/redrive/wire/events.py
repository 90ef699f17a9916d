"""The events that `Connection.receive_data` yields.

Seven hot events carry or settle messages; everything else is a `Command` around a method value. They are plain slotted
classes built by position, because a `Delivery` is made fifty thousand times a second.

    event      the method            client receives   server receives
    Delivery   basic.deliver         ✓
    Got        basic.get-ok          ✓
    Returned   basic.return          ✓
    Published  basic.publish                           ✓
    Ack        basic.ack             a confirm         ✓
    Nack       basic.nack            a refusal         ✓
    Reject     basic.reject                            ✓
    Heartbeat  a heartbeat frame     ✓                 ✓
    Greeted    the protocol header                     ✓
    Command    any other method      ✓                 ✓

Every event has `channel` (0 for the connection's own).
"""

from typing import Any, TypeAlias

from redrive.wire.methods import Method
from redrive.wire.properties import Properties


class ContentEvent:
    """The base of all events with a message: the raw content header from the property flags on, and the body."""

    __slots__ = ("_properties", "body", "channel", "header", "route")

    channel: int
    route: tuple[str, str]
    header: bytes
    body: bytes
    _properties: Properties | None

    @property
    def exchange(self) -> str:
        return self.route[0]

    @property
    def routing_key(self) -> str:
        return self.route[1]

    @property
    def properties(self) -> Properties:
        """The properties over `header`, decoded as they are read."""
        properties = self._properties
        if properties is None:
            properties = self._properties = Properties(self.header)
        return properties

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} channel={self.channel} exchange={self.exchange!r} "
            f"routing_key={self.routing_key!r} body={len(self.body)} octets>"
        )


class Delivery(ContentEvent):
    """A message for a consumer. `route` is (exchange, routing key).

    `session` is what the connection's owner gave to `Connection.set_delivery_type` for the channel, else None.
    """

    __slots__ = ("consumer_tag", "delivery_tag", "redelivered", "session")

    def __init__(
        self,
        channel: int,
        consumer_tag: str,
        delivery_tag: int,
        redelivered: bool,
        route: tuple[str, str],
        header: bytes,
        body: bytes,
        session: Any = None,
    ) -> None:
        self.channel = channel
        self.consumer_tag = consumer_tag
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.session = session
        self.route = route
        self.header = header
        self.body = body
        self._properties = None


class Got(ContentEvent):
    """basic.get-ok, the answer to basic.get: a message, and how many are left."""

    __slots__ = ("delivery_tag", "message_count", "redelivered")

    def __init__(
        self,
        channel: int,
        delivery_tag: int,
        redelivered: bool,
        message_count: int,
        route: tuple[str, str],
        header: bytes,
        body: bytes,
    ) -> None:
        self.channel = channel
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.message_count = message_count
        self.route = route
        self.header = header
        self.body = body
        self._properties = None


class Returned(ContentEvent):
    """A mandatory message that no queue took; its confirm follows."""

    __slots__ = ("reply_code", "reply_text")

    def __init__(
        self, channel: int, reply_code: int, reply_text: str, route: tuple[str, str], header: bytes, body: bytes
    ) -> None:
        self.channel = channel
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.route = route
        self.header = header
        self.body = body
        self._properties = None


class Published(ContentEvent):
    """A message that a client publishes."""

    __slots__ = ("immediate", "mandatory")

    def __init__(
        self, channel: int, mandatory: bool, immediate: bool, route: tuple[str, str], header: bytes, body: bytes
    ) -> None:
        self.channel = channel
        self.mandatory = mandatory
        self.immediate = immediate
        self.route = route
        self.header = header
        self.body = body
        self._properties = None


class Ack:
    """A consumer's ack, or a broker's confirm; with `multiple`, of everything up to the tag (tag 0: everything)."""

    __slots__ = ("channel", "delivery_tag", "multiple")

    def __init__(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        self.channel = channel
        self.delivery_tag = delivery_tag
        self.multiple = multiple

    def __repr__(self) -> str:
        return f"<Ack channel={self.channel} delivery_tag={self.delivery_tag} multiple={self.multiple}>"


class Nack:
    """A consumer's nack, or a broker's refusal of a publish (where `requeue` means nothing)."""

    __slots__ = ("channel", "delivery_tag", "multiple", "requeue")

    def __init__(self, channel: int, delivery_tag: int, multiple: bool, requeue: bool) -> None:
        self.channel = channel
        self.delivery_tag = delivery_tag
        self.multiple = multiple
        self.requeue = requeue

    def __repr__(self) -> str:
        return (
            f"<Nack channel={self.channel} delivery_tag={self.delivery_tag} multiple={self.multiple} "
            f"requeue={self.requeue}>"
        )


class Reject:
    """A consumer's reject."""

    __slots__ = ("channel", "delivery_tag", "requeue")

    def __init__(self, channel: int, delivery_tag: int, requeue: bool) -> None:
        self.channel = channel
        self.delivery_tag = delivery_tag
        self.requeue = requeue

    def __repr__(self) -> str:
        return f"<Reject channel={self.channel} delivery_tag={self.delivery_tag} requeue={self.requeue}>"


class Heartbeat:
    """The peer is alive. Any other bytes prove that too."""

    __slots__ = ()
    channel = 0

    def __repr__(self) -> str:
        return "<Heartbeat>"


class Greeted:
    """A client sent the header of AMQP 0-9-1; now the server sends connection.start."""

    __slots__ = ()
    channel = 0

    def __repr__(self) -> str:
        return "<Greeted>"


class Command:
    """A cold method. channel.close and connection.close have been answered with close-ok when they come out."""

    __slots__ = ("channel", "method")

    def __init__(self, channel: int, method: Method) -> None:
        self.channel = channel
        self.method = method

    def __repr__(self) -> str:
        return f"<Command channel={self.channel} {self.method}>"


Event: TypeAlias = Delivery | Got | Returned | Published | Ack | Nack | Reject | Heartbeat | Greeted | Command
