"""Where a delivery came from: newly published, or back from a wait; its original route, and which headers to trust.

A retry changes the route that a handler would see. Through the default exchange a message comes back with its queue's
name as routing key; in shape `tiered` it re-enters the main exchange as `<domain>.retry`, and every queue that is bound
for that key gets a copy. Our headers on a delivery are trusted only if it came by one of these routes and carries a
digest of ours that fits it. A new message whose publisher copied the headers of another is therefore a new message.

FreeFlow's own consumers write no digest. While a fleet changes over to Redrive, their consumers and ours take turns
with a message; if ours counted anew each time, it would never be parked. So the document's headers are trusted on a
message that, by its x-death, has expired in this queue's own wait queue. A publisher that copies the headers of our
consumers' messages also copies a digest, and that does not fit.

    came through                     digest            our headers   its x-death
    default exchange, queue's name   fits              trusted       trusted
    default exchange, queue's name   none              not           trusted: a reject adds no digest
    default exchange, queue's name   another's         not           not
    a declared re-entry (tiered)     fits              trusted       only that it has waited
    a declared re-entry (tiered)     none              FreeFlow's    only that it has waited in this queue's own wait
    any other route                  any               not           not
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

RETRY_WORD = "retry"
"""The last word of the routing key with which a tiered retry re-enters its exchange."""


class HeaderTrust(Enum):
    """Which of our headers on a delivery to trust."""

    NONE = "none"
    """None: nothing shows that they are about this message."""
    DOCUMENTED = "documented"
    """Those of the tiered document: another implementation's consumer retried it."""
    OWN = "own"
    """All: they are about this message, in this queue or in the queue whose retry it is."""
    ANOTHERS = "another's"
    """None: they were copied from another message."""


def header_trust(
    *,
    queue: str,
    route: tuple[str, str],
    digest: Any,
    original_queue: Any,
    tiered: Collection[str],
    digest_for: Callable[[str], str],
    has_waited_here: Callable[[], bool],
) -> HeaderTrust:
    """Which of our headers to trust on a delivery that came by `route`.

    `digest` and `original_queue` are what its headers say (`x-redrive-digest`, `x-original-queue`). `tiered` are the
    queues whose retries re-enter by this route, `digest_for` gives the digest that fits in a queue, `has_waited_here`
    says whether the message has expired in a wait queue of this queue.
    """
    if digest is None:
        return HeaderTrust.DOCUMENTED if queue in tiered and has_waited_here() else HeaderTrust.NONE
    if not isinstance(digest, str):
        return HeaderTrust.NONE
    if digest == digest_for(queue):
        came_back = route == (DEFAULT_EXCHANGE, queue) or queue in tiered
        return HeaderTrust.OWN if came_back else HeaderTrust.NONE
    if isinstance(original_queue, str) and original_queue != queue and digest == digest_for(original_queue):
        return HeaderTrust.OWN if original_queue in tiered else HeaderTrust.NONE
    return HeaderTrust.ANOTHERS


def original_route(message: ReceivedMessage) -> dict[str, str]:
    """The `x-original-*` headers of a copy: this queue, and the route by which the message first came to it."""
    return write_original_route(original_headers(message), message)


def write_original_route(written: dict[str, Any], message: ReceivedMessage) -> dict[str, Any]:
    """Puts them into headers that already have the `x-original-*` of `core`."""
    written[headers.ORIGINAL_QUEUE] = message.queue
    if not came_back(message):
        written[headers.ORIGINAL_EXCHANGE] = message.exchange
        written[headers.ORIGINAL_ROUTING_KEY] = message.routing_key
    return written


def handler_routing_key(message: ReceivedMessage) -> str:
    """The key to show to a handler: the one the message was published with, also on a retry."""
    return original_routing_key(message) if came_back(message) else message.routing_key


def came_back(message: ReceivedMessage) -> bool:
    """Whether its exchange and key are those of a retry, not those of its publisher."""
    if message.exchange == DEFAULT_EXCHANGE:
        return message.routing_key == message.queue
    return _is_retry_key(message.routing_key) and message.header(headers.ORIGINAL_ROUTING_KEY) is not None


def is_foreign_copy(message: ReceivedMessage, tiered: Collection[str]) -> bool:
    """Whether it is another queue's tiered retry, of which the main exchange gave this queue a copy.

    Such a copy is acked unhandled, so the evidence must be complete: it is a copy of ours that names another queue, it
    came by the route that is declared for that queue's retries (`tiered` are all queues that use the route), and it has
    expired in a wait queue.
    """
    home = message.header(headers.ORIGINAL_QUEUE)
    return isinstance(home, str) and home != message.queue and home in tiered and _has_waited(message)


def must_be_copied(message: ReceivedMessage) -> bool:
    """Whether the message must not be rejected into its wait, but go there as a copy without the headers at fault.

    - A death in this queue other than a reject: RabbitMQ 3.10 goes on in the x-death that a message brings along (4.x
      does not), takes the way back for a cycle and drops the message. One that was dead-lettered here before and was
      moved back by hand or by a shovel has such a death.
    - An x-death that no broker wrote: 3.10 crashes on it.
    - Headers copied from another message: they would make it untrusted again when it comes back, whatever the broker
      has counted by then.
    - More rejects than are its own: another message's would count as its attempts.
    - A publisher's x-delivery-count: 4.3 takes a message that brings one for redelivered, and it would count too.
    """
    x_death = message.header(headers.DEATHS)
    deaths = deaths_in(x_death, message.queue)
    return (
        deaths.otherwise
        or has_odd_deaths(x_death)
        or message.has_anothers_headers
        or deaths.rejections > own_deaths(message).rejections
        or brings_deliveries(message)
    )


def _is_retry_key(key: str) -> bool:
    return key.endswith(f".{RETRY_WORD}")


def _has_waited(message: ReceivedMessage) -> bool:
    deaths = read_deaths(message.header(headers.DEATHS))
    return deaths is not None and deaths.has_waited
