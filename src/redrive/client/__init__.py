"""The AMQP client: asyncio on `wire`, with reconnect, confirms and coalesced acks.

    async with Client("amqp://guest:guest@localhost/") as client:
        publisher = await client.publisher()
        outcome = await publisher.publish("domain.events", "orders.placed", b"{}")
        consumer = await client.consume("orders", handle, prefetch=500)

`connection` is one connection, `channel_session` one channel on it; `publisher` and `consumer` outlive both; `client`
keeps the connection alive for them.
"""

from redrive.client.amqp_url import BrokerTarget, Tls, parse_url, with_password
from redrive.client.argument_mismatch import ArgumentMismatch, read_argument_mismatch
from redrive.client.backoff import ReconnectBackoff
from redrive.client.channel import Channel, QueueState
from redrive.client.client import Client
from redrive.client.connection import Connection, Dial
from redrive.client.consume_session import Delivery
from redrive.client.consumer import Consumer, Deliveries, Handler
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
from redrive.client.publish_outcomes import Confirmed, InDoubt, Nacked, Outcome, Returned
from redrive.client.publisher import Outgoing, Publisher

__all__ = [
    "AccessRefused",
    "AlreadySettled",
    "ArgumentMismatch",
    "AuthenticationFailed",
    "BrokerTarget",
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
    "ReconnectBackoff",
    "ResourceLocked",
    "Returned",
    "StaleDelivery",
    "Tls",
    "parse_url",
    "read_argument_mismatch",
    "with_password",
]
