"""Who may connect, and what the broker says about itself in connection.start."""

from collections.abc import Mapping
from typing import Any

from redrive import wire
from redrive.embedded.engine import AmqpError, Profile

MECHANISMS = "AMQPLAIN PLAIN"
IMPERSONATOR = "impersonator"
"""The tag of a user who may publish in another's name."""
_CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


def server_properties(profile: Profile) -> dict[str, Any]:
    """As RabbitMQ of that version introduces itself, with one addition: what it really is."""
    return {
        "capabilities": dict.fromkeys(_CAPABILITIES, True),
        "cluster_name": "redrive@embedded",
        "copyright": profile.copyright,
        "information": "Licensed under the MPL 2.0. Website: https://rabbitmq.com",
        "platform": profile.platform,
        "product": "RabbitMQ",
        "version": profile.server_version,
        "embedded": "redrive",
    }


def check_login(users: Mapping[str, str], mechanism: str, response: bytes) -> str:
    """The user who logs in. Raises AmqpError (403) as RabbitMQ says it, and 403 too for an unknown mechanism."""
    try:
        user, password = wire.read_credentials(mechanism, response)
    except wire.RemoteProtocolError:
        user, password = "", None
    if password is None or users.get(user) != password:
        raise AmqpError(
            403,
            f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile.",
        )
    return user


def has_capability(client_properties: Mapping[str, Any], name: str) -> bool:
    """Whether a client said that it can."""
    capabilities = client_properties.get("capabilities")
    return isinstance(capabilities, Mapping) and capabilities.get(name) is True
