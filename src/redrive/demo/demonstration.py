"""Runs the demonstration on a broker: declares its queues, runs the app, takes the account, deletes the queues."""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from redrive import wire
from redrive.client import BrokerTarget, Client, ClientError, Confirmed, Publisher, parse_url
from redrive.core import RedriveError
from redrive.demo.account import HANDLED, PARKED, Account, render_account, take_account
from redrive.demo.lines import BOLD, DIM, GREEN, RED, Lines
from redrive.demo.shop import CASES, OrderCase, Shop, open_shop, write_order
from redrive.deploy import apply, inspect
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunner, AppRunOptions
from redrive.topology import RetryRoutes
from redrive.wiring import stop_signals_handled

ENDED_S_MAX = 20.0
"""How long all orders may take to be handled or parked; the longest takes four seconds."""
BALANCED_S_MAX = 5.0
_BETWEEN_ORDERS_S = 1.5
_PUBLISH_S_MAX = _CLEANUP_S_MAX = 10.0
_GRACE_S = 5.0

Write = Callable[[str], None]


class DemoFailed(RedriveError):
    """An order could not be sent, so there is nothing to show."""


def run_demo(*, url: str | None, once: bool, write: Write, colour: bool) -> bool:
    """Runs it; whether every message is accounted for.

    Without `url` on an embedded broker of its own; with one on that broker, under names of its own, which are deleted
    at the end. `once`: every kind of order once; otherwise new ones until it is interrupted. Raises `ConnectionFailed`,
    `InvalidUrl`, `ApplyFailed` and `DemoFailed`.
    """
    return asyncio.run(_run(url=url, once=once, write=write, colour=colour))


async def _run(*, url: str | None, once: bool, write: Write, colour: bool) -> bool:
    shop = open_shop() if url is None else open_shop(f"redrive-demo-{secrets.token_hex(3)}.")
    (routes,) = shop.compiled.retry_routes
    lines = Lines(routes, now_s=time.monotonic, write=write, colour=colour)
    async with (
        _broker(url, lines) as target,
        Client(target, name="redrive demo (orders)") as client,
        _declared(client, shop, routes, lines),
    ):
        _introduce(lines, routes, once=once)
        publisher = await client.publisher()
        runner = AppRunner(
            shop.app.consumptions(shop.compiled),
            lambda purpose: Client(target, name=f"redrive demo ({purpose})", observer=lines),
            observer=lines,
            options=AppRunOptions(grace_s=_GRACE_S),
        )
        async with runner:
            if once:
                for number, case in enumerate(CASES, 1):
                    await _send(publisher, shop, lines, case, number)
            else:
                await _send_until_interrupted(publisher, shop, lines)
            await lines.wait_ended(ENDED_S_MAX)
        account = await _balanced(client, routes, lines)
        _conclude(lines, account)
        return account.is_balanced


@asynccontextmanager
async def _broker(url: str | None, lines: Lines) -> AsyncIterator[BrokerTarget]:
    if url is not None:
        target = parse_url(url)
        lines.say(f"On {target.address}", DIM)
        yield target
        return
    async with EmbeddedBroker("4.3") as broker:
        lines.say(f"On an embedded broker that behaves like RabbitMQ {broker.profile}: {broker.url}", DIM)
        yield parse_url(broker.url)


@asynccontextmanager
async def _declared(client: Client, shop: Shop, routes: RetryRoutes, lines: Lines) -> AsyncIterator[None]:
    """The shop's exchange and queues, there within and gone after."""
    try:
        topology = shop.compiled.topology
        if topology.vhosts[0].name != client.target.vhost:
            topology = topology.moved(client.target.vhost)
        await apply(client, topology, await inspect(client, topology))
        yield
    finally:
        try:
            async with asyncio.timeout(_CLEANUP_S_MAX):
                await _clean_up(client, shop, routes)
        except (TimeoutError, ClientError) as error:
            lines.say(f"Could not delete what begins with {routes.queue}: {error or 'no answer'}", RED)


async def _clean_up(client: Client, shop: Shop, routes: RetryRoutes) -> None:
    channel = await client.channel()
    await channel.delete_exchange(shop.exchange)
    for queue in (routes.queue, *(one.queue for one in routes.waits), routes.parking.queue):
        await channel.delete_queue(queue)
    await channel.close()


async def _send(publisher: Publisher, shop: Shop, lines: Lines, case: OrderCase, number: int) -> None:
    message_id = f"order-{number}"
    lines.note_sent(message_id, case)
    properties = wire.Properties.of(
        message_id=message_id,
        content_type="application/json",
        delivery_mode=2,
        type="order.placed",
        timestamp=wire.Timestamp(int(time.time())),
    )
    outcome = await publisher.publish(
        shop.exchange, shop.routing_key, write_order(case, number), properties, deadline_s=_PUBLISH_S_MAX
    )
    if not isinstance(outcome, Confirmed):
        raise DemoFailed(f"{message_id} could not be sent: {outcome}; try again, or without --url")


async def _send_until_interrupted(publisher: Publisher, shop: Shop, lines: Lines) -> None:
    """An order of some kind every moment, until Ctrl-C or a polite kill."""
    interrupted = asyncio.Event()
    sent = 0
    with stop_signals_handled(interrupted.set):
        while not interrupted.is_set():
            case = CASES[sent] if sent < len(CASES) else random.choice(CASES)
            sent += 1
            await _send(publisher, shop, lines, case, sent)
            try:
                async with asyncio.timeout(_BETWEEN_ORDERS_S):
                    await interrupted.wait()
            except TimeoutError:
                pass
    lines.say("No more orders; waiting for those on their way.", DIM)


async def _balanced(client: Client, routes: RetryRoutes, lines: Lines) -> Account:
    """The account, taken again for a moment while it does not add up: a broker may count a little late."""
    deadline_s = time.monotonic() + BALANCED_S_MAX
    while True:
        account = await take_account(client, routes, lines.stories)
        if account.is_balanced or time.monotonic() > deadline_s:
            return account
        await asyncio.sleep(0.2)


def _introduce(lines: Lines, routes: RetryRoutes, *, once: bool) -> None:
    waits = ", ".join(wait.queue for wait in routes.waits)
    lines.say(f"{routes.queue}: {routes.attempts} runs, between them {waits}; then {routes.parking.queue}.")
    if not once:
        lines.say("Ctrl-C ends it.", DIM)
    lines.say("")


def _conclude(lines: Lines, account: Account) -> None:
    lines.say("")
    for line in render_account(account):
        lines.say(line)
    lines.say("")
    sums = f"{len(account.entries)} sent = {account.count(HANDLED)} handled + {account.count(PARKED)} parked"
    if account.is_balanced:
        lines.say(f"{sums}. The broker agrees: every message is accounted for.", f"{BOLD};{GREEN}")
    else:
        lines.say(f"It does not add up: {sums}; see above.", f"{BOLD};{RED}")
