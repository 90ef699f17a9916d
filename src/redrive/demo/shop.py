"""A shop: one queue on a ladder of two short delays, one handler, and orders that go wrong in every way there is."""

import asyncio
import json
from dataclasses import dataclass

from redrive import App, Message, Park, RetryAfter
from redrive.topology import Compiled, compile_declaration, declare

DELAYS = ("1s", "3s")
TIMEOUT = "500ms"
_LONGER_THAN_THE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a handler gets: the body, read into this."""

    number: int
    item: str
    mood: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCase:
    """A kind of order: its mood, what is the matter with it, and where it should end."""

    mood: str
    story: str
    ends: str


CASES = (
    OrderCase(mood="fine", story="nothing is wrong with it", ends="handled"),
    OrderCase(mood="flaky", story="the warehouse is down once", ends="handled"),
    OrderCase(mood="hopeless", story="the warehouse is down every time", ends="parked"),
    OrderCase(mood="malformed", story="its body is not JSON", ends="parked"),
    OrderCase(mood="slow", story="takes too long the first time", ends="handled"),
    OrderCase(mood="busy", story="asks to come back in 2 s", ends="handled"),
    OrderCase(mood="cancelled", story="is not worth a retry", ends="parked"),
    OrderCase(mood="fine", story="nothing is wrong with this one either", ends="handled"),
)


class WarehouseDown(Exception):
    """Somebody else's trouble: worth a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The shop's names on a broker, its topology, and its app."""

    exchange: str
    queue: str
    compiled: Compiled
    app: App

    @property
    def routing_key(self) -> str:
        """What its orders are published with."""
        return "orders.placed"


def open_shop(prefix: str = "") -> Shop:
    """A shop whose exchange and queues all begin with `prefix`."""
    exchange, queue = f"{prefix}shop.events", f"{prefix}orders"
    compiled = compile_declaration(
        declare(
            exchanges={exchange: "topic"},
            queues={queue: {"from": {exchange: ["orders.#"]}, "retry": list(DELAYS)}},
        )
    )
    app = App(compiled, name="redrive demo")

    @app.consumer(queue, timeout=TIMEOUT)
    async def place(order: Order, message: Message) -> None:
        match order.mood:
            case "flaky" if message.attempt == 1:
                raise WarehouseDown("the warehouse does not answer")
            case "hopeless":
                raise WarehouseDown("the warehouse does not answer")
            case "slow" if message.attempt == 1:
                await asyncio.sleep(_LONGER_THAN_THE_TIMEOUT_S)
            case "busy" if message.attempt == 1:
                raise RetryAfter("2s", "the warehouse is busy")
            case "cancelled":
                raise Park("the customer has cancelled it")

    return Shop(exchange=exchange, queue=queue, compiled=compiled, app=app)


def write_order(case: OrderCase, number: int) -> bytes:
    """The body of an order; a malformed one is cut off."""
    body = json.dumps({"number": number, "item": "tea", "mood": case.mood}).encode()
    return body[: len(body) // 2] if case.mood == "malformed" else body
