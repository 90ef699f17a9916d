"""How a delivery came into its queue: published there, or back from a wait; and what it was called at first.

A hop changes what a handler would see. Through the default exchange a message comes back with its queue's name as its
key; in shape `tiered` it re-enters the main exchange as `<domain>.retry`, where every queue that matches gets it. Only
a delivery that came in one of these ways, with a digest of ours that fits it, is read by the headers we write: a new
message that somebody made by copying another's headers is what it says it is.

FreeFlow's own consumers write no digest. While a fleet changes over to us theirs and ours take turns with a message,
and if we began anew each time, it would never end. So what the document writes is believed of a message that has
expired in this queue's own wait queue, as the broker tells in x-death; whoever copies the headers of our consumers'
messages copies a digest that does not fit.

    came through                     has our digest    our headers   its x-death
    default exchange, queue's name   that fits         believed      believed
    default exchange, queue's name   none              not           believed: a reject carries no digest
    default exchange, queue's name   another's         not           not
    a declared way back (tiered)     that fits         believed      only that it has waited
    a declared way back (tiered)     none              FreeFlow's    only that it has waited in this queue's own wait
    anything else                    whatever          not           not
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

from redrive.core import (
    ReceivedMessage,
    brings_deliveries,
    deaths_in,
    has_odd_deaths,
    headers,
    original_headers,
    original_routing_key,
    own_deaths,
    read_deaths,
)
from redrive.topology.model import DEFAULT_EXCHANGE

RETURN_WORD = "retry"
"""The last word of the key with which a tiered retry comes back."""


class HeaderTrust(Enum):
    """What the headers of ours on a delivery are worth."""

    NONE = "none"
    """They are about nobody we know: none are believed."""
    DOCUMENTED = "documented"
    """A foreign consumer's retry, by the way and in the words of the tiered document: those are believed."""
    OWN = "own"
    """They are about this message, in this queue or in the one whose copy it is."""
    ANOTHERS = "another's"
    """They were copied from another message."""


def header_trust(
    *,
    queue: str,
    route: tuple[str, str],
    told: Any,
    home: Any,
    tiered: Collection[str],
    digest_for: Callable[[str], str],
    has_waited_here: Callable[[], bool],
) -> HeaderTrust:
    """What they are worth: `told` is the digest they say, `home` the queue (`x-original-queue`), `tiered` the queues
    whose retries come back by this route, `digest_for` the digest that would fit in a queue, and `has_waited_here`
    whether it has expired in a wait queue of this queue."""
    if told is None:
        return HeaderTrust.DOCUMENTED if queue in tiered and has_waited_here() else HeaderTrust.NONE
    if not isinstance(told, str):
        return HeaderTrust.NONE
    if told == digest_for(queue):
        came_back = route == (DEFAULT_EXCHANGE, queue) or queue in tiered
        return HeaderTrust.OWN if came_back else HeaderTrust.NONE
    if isinstance(home, str) and home != queue and told == digest_for(home):
        return HeaderTrust.OWN if home in tiered else HeaderTrust.NONE
    return HeaderTrust.ANOTHERS


def original_route(message: ReceivedMessage) -> dict[str, str]:
    """The `x-original-*` headers of a copy: this queue, and how the message first came to it."""
    return correct_route(original_headers(message), message)


def correct_route(written: dict[str, Any], message: ReceivedMessage) -> dict[str, Any]:
    """The same, put into headers that have the `x-original-*` of `core` already."""
    written[headers.ORIGINAL_QUEUE] = message.queue
    if not came_back(message):
        written[headers.ORIGINAL_EXCHANGE] = message.exchange
        written[headers.ORIGINAL_ROUTING_KEY] = message.routing_key
    return written


def handler_routing_key(message: ReceivedMessage) -> str:
    """The key to show to a handler: the one the message was first published with, whichever way it came back."""
    return original_routing_key(message) if came_back(message) else message.routing_key


def came_back(message: ReceivedMessage) -> bool:
    """Whether its exchange and key are those of a way back, not those of whoever published it."""
    if message.exchange == DEFAULT_EXCHANGE:
        return message.routing_key == message.queue
    return _is_return_key(message.routing_key) and message.header(headers.ORIGINAL_ROUTING_KEY) is not None


def is_foreign_copy(message: ReceivedMessage, tiered: Collection[str]) -> bool:
    """Whether it is another queue's tiered retry, which the main exchange gave to this queue as well.

    Such a copy is acked unhandled, so the evidence must be complete: it is a copy of ours that names another queue, it
    came by the way that is declared for that queue's retries (`tiered` are all queues whose way it is), and it has
    expired in a wait queue.
    """
    home = message.header(headers.ORIGINAL_QUEUE)
    return isinstance(home, str) and home != message.queue and home in tiered and _has_waited(message)


def must_be_copied(message: ReceivedMessage) -> bool:
    """Whether it must not be rejected into its wait as it is, but go there as a copy, which leaves all of this behind.

    RabbitMQ 3.10 goes on in an x-death that a message brings along (4.x does not). A death in this queue that was no
    reject makes the way back a cycle in its eyes, and it would drop it: a message that was dead here before and was
    moved back by hand or by a shovel has one. Rejects that were another message's would be counted as its own. So would
    a publisher's x-delivery-count on 4.3, which takes a message that brings one for redelivered; and headers of another
    message would make it a stranger again when it comes back, whatever the broker has counted by then. On an x-death
    that no broker wrote 3.10 crashes.
    """
    told = message.header(headers.DEATHS)
    deaths = deaths_in(told, message.queue)
    return (
        deaths.otherwise
        or has_odd_deaths(told)
        or message.has_anothers_headers
        or deaths.rejections > own_deaths(message).rejections
        or brings_deliveries(message)
    )


def _is_return_key(key: str) -> bool:
    return key.endswith(f".{RETURN_WORD}")


def _has_waited(message: ReceivedMessage) -> bool:
    deaths = read_deaths(message.header(headers.DEATHS))
    return deaths is not None and deaths.has_waited
