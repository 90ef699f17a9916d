"""What a live test connects to: a broker, and a clean vhost on it.

A broker is a node of the rig or one that REDRIVE_TEST_URLS names; most tests need not know which.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rig.management import Management


class Broker(Protocol):
    """A running RabbitMQ. `label` is major.minor, `version` the whole of it, `profile` the known label (3.10, 4.0, 4.3)
    whose behaviour it is expected to have: test that, where behaviour differs."""

    @property
    def label(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def profile(self) -> str: ...

    @property
    def management(self) -> Management: ...

    @property
    def management_url(self) -> str: ...

    @property
    def user(self) -> str: ...

    def amqp_url(self, vhost: str = "/") -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhost:
    """A vhost of a test's own. Its broker is shared: other vhosts on it belong to others."""

    name: str
    broker: Broker

    @property
    def amqp_url(self) -> str:
        return self.broker.amqp_url(self.name)

    @property
    def management(self) -> Management:
        return self.broker.management

    @property
    def management_url(self) -> str:
        return self.broker.management_url

    @property
    def label(self) -> str:
        return self.broker.label

    @property
    def version(self) -> str:
        return self.broker.version

    @property
    def profile(self) -> str:
        return self.broker.profile


@contextmanager
def clean_vhost(broker: Broker, *, purpose: str = "test") -> Iterator[Vhost]:
    """A new vhost, empty, with all permissions for the broker's user; deleted with all in it afterwards."""
    vhost = Vhost(name=f"redrive-{purpose[:60]}-{secrets.token_hex(4)}", broker=broker)
    broker.management.put("vhosts", vhost.name)
    try:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        broker.management.put("permissions", vhost.name, broker.user, body=everything)
        yield vhost
    finally:
        broker.management.delete("vhosts", vhost.name)
