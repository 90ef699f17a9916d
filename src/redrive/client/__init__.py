"""The AMQP client: asyncio on `wire`, with reconnect, confirms and coalesced acks.

    async with Client("amqp://guest:guest@localhost/") as client:
        publisher = await client.publisher()
        outcome = await publisher.publish("domain.events", "orders.placed", b"{}")
        consumer = await client.consume("orders", handle, prefetch=500)

`connection` is one connection, `session` one channel on it; `publisher` and `consumer` outlive both; `client` keeps
the connection alive for them.
"""

from redrive.client.argument_mismatch import ArgumentMismatch, read_argument_mismatch
from redrive.client.backoff import Backoff
from redrive.client.channel import Channel, QueueState
from redrive.client.client import Client
from redrive.client.connection import Connection, Dial
from redrive.client.consumer import Consumer, Deliveries, Handler
from redrive.client.consuming import Delivery
from redrive.client.errors import (
    AccessRefused,
    AlreadySettled,
    AuthenticationFailed,
    ChannelClosed,
    ChannelsExhausted,
    ClientError,
    ConnectionClosed,
    ConnectionFailed,
    InvalidUrl,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    StaleDelivery,
)
from redrive.client.outcomes import Confirmed, InDoubt, Nacked, Outcome, Returned
from redrive.client.publisher import Outgoing, Publisher
from redrive.client.uri import Target, Tls, parse_url, with_password

__all__ = [
    "AccessRefused",
    "AlreadySettled",
    "ArgumentMismatch",
    "AuthenticationFailed",
    "Backoff",
    "Channel",
    "ChannelClosed",
    "ChannelsExhausted",
    "Client",
    "ClientError",
    "Confirmed",
    "Connection",
    "ConnectionClosed",
    "ConnectionFailed",
    "Consumer",
    "Deliveries",
    "Delivery",
    "Dial",
    "Handler",
    "InDoubt",
    "InvalidUrl",
    "Nacked",
    "NotFound",
    "Outcome",
    "Outgoing",
    "PreconditionFailed",
    "Publisher",
    "QueueState",
    "ResourceLocked",
    "Returned",
    "StaleDelivery",
    "Target",
    "Tls",
    "parse_url",
    "read_argument_mismatch",
    "with_password",
]
