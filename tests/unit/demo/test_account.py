"""The account: it adds up only if the broker has every order where the app says it is."""

import asyncio
from typing import Any

import pytest

from redrive import wire
from redrive.client import Client, Confirmed
from redrive.core import headers
from redrive.demo.account import Account, render_account, take_account
from redrive.demo.lines import Story
from redrive.demo.shop import CASES, OrderCase, open_shop, write_order
from redrive.embedded import EmbeddedBroker
from redrive.wiring import declare_on

FINE = next(case for case in CASES if case.ends == "handled")
HOPELESS = next(case for case in CASES if case.ends == "parked")


def story(case: OrderCase, decision: str, attempt: int = 1) -> Story:
    return Story(case=case, decision=decision, attempt=attempt)


async def publish(client: Client, queue: str, message_id: str, **carried: Any) -> None:
    publisher = await client.publisher()
    properties = wire.Properties.of(message_id=message_id, delivery_mode=2, headers=carried)
    assert await publisher.publish("", queue, b"{}", properties) == Confirmed()


def account_of(stories: dict[str, Story], *lying: tuple[str, str]) -> tuple[Account, list[str]]:
    """The account of a shop in whose queues these messages lie, and where they lie after it was taken."""

    async def take() -> tuple[Account, list[str]]:
        shop = open_shop()
        (routes,) = shop.compiled.retry_routes
        async with EmbeddedBroker("4.3", time="manual") as broker:
            await declare_on(broker, shop.compiled.topology)
            async with Client(broker.url) as client:
                for queue, message_id in lying:
                    await publish(client, queue, message_id, **{headers.REASON: "attempts", headers.RETRY_COUNT: 2})
                account = await take_account(client, routes, stories)
                ids = dict.fromkeys(message_id for _, message_id in lying)
                return account, [place.queue for one in ids for place in broker.whereabouts(one)]

    return asyncio.run(take())


def test_handled_and_gone_parked_and_there_is_balanced_and_taking_the_account_moves_nothing() -> None:
    stories = {"order-1": story(FINE, "ack"), "order-2": story(HOPELESS, "park", 3)}
    account, places = account_of(stories, ("orders.parked", "order-2"))
    assert account.is_balanced
    assert (account.count("handled"), account.count("parked")) == (1, 1)
    assert places == ["orders.parked"]
    assert "order-2" in render_account(account)[3]
    assert "orders.parked (attempts)" in render_account(account)[3]


@pytest.mark.parametrize(
    ("stories", "lying", "problem"),
    [
        ({"order-1": story(HOPELESS, "park")}, (), "neither acked nor parked"),
        ({"order-1": story(FINE, "retry")}, (), "the app's last word about it: retry"),
        ({"order-1": story(HOPELESS, "ack")}, (), "should be parked"),
        ({"order-1": story(FINE, "park")}, (("orders.parked", "order-1"),), "should be handled"),
        ({"order-1": story(HOPELESS, "ack")}, (("orders.parked", "order-1"),), "was handled too"),
        ({"order-1": story(HOPELESS, "park")}, (("orders.parked", "order-1"),) * 2, "is there 2 times"),
        ({"order-1": story(FINE, "ack")}, (("orders", "order-1"),), "left in orders: 1"),
        ({"order-1": story(FINE, "ack")}, (("orders.wait.3s", "order-1"),), "left in orders.wait.3s: 1"),
        ({}, (("orders.parked", "stranger"),), "parked, but never sent: stranger"),
    ],
)
def test_what_does_not_add_up_is_named(
    stories: dict[str, Story], lying: tuple[tuple[str, str], ...], problem: str
) -> None:
    account, _ = account_of(stories, *lying)
    assert not account.is_balanced
    assert problem in "\n".join(render_account(account))


def test_every_kind_of_order_can_be_read_but_the_malformed_one() -> None:
    readable = [write_order(case, 1).endswith(b"}") for case in CASES]
    assert [case.mood for case, whole in zip(CASES, readable, strict=True) if not whole] == ["malformed"]
