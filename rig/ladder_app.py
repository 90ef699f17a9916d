"""An app on shape `ladder` with its real delays, 30s, 5m and 30m, whose handler fails every time; it knows nothing of
virtual time. `climb` tells the real seconds from the publish until the message is parked."""

import asyncio
import time
from collections.abc import Callable

from redrive import App
from redrive.client import Client, Confirmed
from redrive.topology import compile_declaration, read_declaration
from redrive.wire import Properties
from redrive.wiring import declare_missing, running

ORDER = "order-7"
PARKED = "orders.parked"


class Parking:
    """Hears when a message is parked."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    def note(self, event: str, /, **fields: object) -> None:
        """Every event of the app."""
        if event == "runtime.decided" and fields["decision"] == "park":
            self.done.set()


async def climb(url: str, ran: Callable[[], None] = lambda: None) -> float:
    """The whole of it on a broker; `ran` is called at each run."""
    compiled = compile_declaration(read_declaration("queues: {orders: {retry: [30s, 5m, 30m]}}"))
    app = App(compiled)

    @app.consumer("orders")
    async def place(_order: bytes) -> None:
        ran()
        raise RuntimeError("the warehouse does not answer")

    await declare_missing(compiled, lambda _: Client(url))
    parking = Parking()
    async with Client(url) as client, running(app, url=url, observer=parking):
        publisher = await client.publisher()
        began_s = time.perf_counter()
        assert await publisher.publish("", "orders", b"{}", Properties.of(message_id=ORDER)) == Confirmed()
        async with asyncio.timeout(30):
            await parking.done.wait()
        return time.perf_counter() - began_s


def climb_with_app(url: str) -> float:
    """The same, for those who have no event loop."""
    return asyncio.run(climb(url))
