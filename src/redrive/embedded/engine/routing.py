"""Routing: which queues get a message that was published to an exchange.

Each exchange is visited once, however they are bound to one another, and a queue gets one copy at most. An exchange
without a matching binding passes the message to its alternate exchange.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redrive.embedded.engine.exchanges import Exchange
from redrive.embedded.engine.messages import Message
from redrive.embedded.engine.queues import Queue

if TYPE_CHECKING:
    from redrive.embedded.engine.vhosts import Vhost


def route(vhost: "Vhost", exchange: Exchange, message: Message) -> list[Queue]:
    """The queues that take a message published to `exchange`, each once."""
    queues: Mapping[str, Queue] = vhost.queues
    if exchange.name == "":
        if len(message.keys) == 1:
            queue = queues.get(message.keys[0])
            return [] if queue is None else [queue]
        found = {key: queues[key] for key in message.keys if key in queues}
        return list(found.values())
    taking: dict[int, Queue] = {}
    seen = {exchange.name}
    todo = [exchange]
    while todo:
        here = todo.pop(0)
        destinations = here.destinations(message)
        for destination in destinations:
            if isinstance(destination, Queue):
                taking[id(destination)] = destination
            elif destination.name not in seen:
                seen.add(destination.name)
                todo.append(destination)
        if not destinations and here.alternate is not None and here.alternate not in seen:
            alternate = vhost.exchanges.get(here.alternate)
            if alternate is not None:
                seen.add(alternate.name)
                todo.append(alternate)
    return list(taking.values())
