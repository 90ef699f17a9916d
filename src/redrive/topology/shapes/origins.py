"""How a delivery came into its queue: published there, or back from a wait; and what it was called at first.

A hop changes what a handler would see. Through the default exchange a message comes back with its queue's name as its
key; in shape `tiered` it re-enters the main exchange as `<domain>.retry`, where every queue that matches gets it. Only
a delivery that came in one of these ways is read by its `x-original-*` headers and its x-death: a new message that
somebody made by copying another's headers is what it says it is.
"""

from typing import Any

from redrive.core import Letter, deaths_in, headers, original_headers, original_routing_key, read_deaths
from redrive.topology.model import DEFAULT_EXCHANGE

RETURN_WORD = "retry"
"""The last word of the key with which a tiered retry comes back."""


def original_route(letter: Letter) -> dict[str, str]:
    """The `x-original-*` headers of a copy: this queue, and how the message first came to it."""
    return correct_route(original_headers(letter), letter)


def correct_route(written: dict[str, Any], letter: Letter) -> dict[str, Any]:
    """The same, put into headers that have the `x-original-*` of `core` already."""
    written[headers.ORIGINAL_QUEUE] = letter.queue
    if not came_back(letter):
        written[headers.ORIGINAL_EXCHANGE] = letter.exchange
        written[headers.ORIGINAL_ROUTING_KEY] = letter.routing_key
    return written


def handler_routing_key(letter: Letter) -> str:
    """The key to show to a handler: the one the message was first published with, whichever way it came back."""
    return original_routing_key(letter) if came_back(letter) else letter.routing_key


def came_back(letter: Letter) -> bool:
    """Whether its exchange and key are those of a way back, not those of whoever published it."""
    if letter.exchange == DEFAULT_EXCHANGE:
        return letter.routing_key == letter.queue
    return _is_return_key(letter.routing_key) and letter.header(headers.ORIGINAL_ROUTING_KEY) is not None


def is_foreign_copy(letter: Letter) -> bool:
    """Whether it is another queue's tiered retry, which the main exchange gave to this queue as well.

    Such a copy is acked unhandled, so the evidence must be complete: it names another queue, it came through an
    exchange as `<domain>.retry`, and it has expired in a wait queue on the way.
    """
    home = letter.header(headers.ORIGINAL_QUEUE)
    return (
        isinstance(home, str)
        and home != letter.queue
        and letter.exchange != DEFAULT_EXCHANGE
        and _is_return_key(letter.routing_key)
        and _has_waited(letter)
    )


def looks_like_cycle(letter: Letter) -> bool:
    """Whether RabbitMQ 3.10 would drop it when it comes back to this queue from a wait it was rejected into.

    It goes on in an x-death that the message brings along (4.x does not), and a death in this queue that was no reject
    makes the way back a cycle in its eyes. A shape's own loop never writes one; a message that was dead here before and
    was moved back by hand or by a shovel has it.
    """
    return deaths_in(letter.header(headers.DEATHS), letter.queue).otherwise


def _is_return_key(key: str) -> bool:
    return key.endswith(f".{RETURN_WORD}")


def _has_waited(letter: Letter) -> bool:
    deaths = read_deaths(letter.header(headers.DEATHS))
    return deaths is not None and deaths.has_waited
