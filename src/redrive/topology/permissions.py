"""Least privilege: what each kind of user needs on a compiled topology, as RabbitMQ's three regular expressions.

Four users cover everything: `deploy` declares and binds; `publisher` publishes to the declared exchanges; `consumer`
runs handlers, so it reads the main queues and publishes retries and parked copies but declares nothing; `operator`
reads the parking queues and sends dead letters back. A publish through the default exchange is a write on
`amq.default`, which reaches every queue of the vhost: RabbitMQ has no narrower right.
"""

import re
from collections.abc import Iterable
from typing import Any

from redrive.topology.compiler import Compiled
from redrive.topology.model import DEFAULT_EXCHANGE, DestinationType, Topology
from redrive.topology.retry_routes import MoveBy

NOTHING = "^$"
"""Matches only the empty name: no right at all."""


def user_permissions(compiled: Compiled, *, users_prefix: str = "redrive-") -> list[dict[str, Any]]:
    """The `permissions` section of a definitions file, one entry per user. The users must exist."""
    topology, retry_routes = compiled.topology, compiled.retry_routes
    parked = {one.parking.queue for one in retry_routes}
    waits = [wait for one in retry_routes for wait in one.waits]
    main = {queue.name for queue in topology.queues} - parked - {wait.queue for wait in waits}
    if not topology.vhosts:
        return []
    names = {one.name for one in topology.exchanges} | {one.name for one in topology.queues}
    # Declaring a queue needs a write right on its dead-letter exchange, binding one a read right on the source.
    declared_to = {one.dead_letter_exchange for one in topology.queues if one.dead_letter_exchange is not None}
    sources = {one.source for one in topology.bindings}
    # A long RetryAfter is a copy even where retries are rejects; any consumer may copy to the end of its queue.
    retries = {wait.exchange for wait in waits}
    copies = {DEFAULT_EXCHANGE} if main else set()
    parkings = {one.parking.exchange for one in retry_routes if one.park_by is MoveBy.PUBLISH}
    returns = {DEFAULT_EXCHANGE} | {wait.exchange for wait in waits}
    rights = {
        "deploy": (_any(names), _any(names | declared_to), _any(names | sources)),
        "publisher": (NOTHING, _any(_publish_exchanges(topology, main)), NOTHING),
        "consumer": (NOTHING, _any(retries | copies | parkings), _any(main)),
        "operator": (NOTHING, _any(returns if retry_routes else ()), _any(parked)),
    }
    return [
        {
            "user": f"{users_prefix}{role}",
            "vhost": topology.vhosts[0].name,
            "configure": configure,
            "write": write,
            "read": read,
        }
        for role, (configure, write, read) in rights.items()
    ]


def _publish_exchanges(topology: Topology, main: set[str]) -> set[str]:
    """The exchanges from which a message reaches a main queue, directly or through others."""
    feeders: dict[str, set[str]] = {}
    for binding in topology.bindings:
        if binding.destination_type is DestinationType.EXCHANGE:
            feeders.setdefault(binding.destination, set()).add(binding.source)
    reached: set[str] = set()
    found = [
        one.source
        for one in topology.bindings
        if one.destination_type is DestinationType.QUEUE and one.destination in main
    ]
    while found:
        exchange = found.pop()
        if exchange not in reached:
            reached.add(exchange)
            found.extend(feeders.get(exchange, ()))
    return reached


def _any(names: Iterable[str]) -> str:
    """A pattern that matches exactly these names; the default exchange goes by its permission name."""
    patterns = sorted({re.escape(name) if name else "amq\\.default" for name in names})
    return f"^({'|'.join(patterns)})$" if patterns else NOTHING
