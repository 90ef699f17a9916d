"""Nothing is acked whose copy is not confirmed: whatever the broker says to a copy, the message is somewhere."""

import asyncio
from typing import Any

import pytest

from redrive import App, Park, wire
from redrive.client import Delivery
from redrive.core import PublishCopy, headers
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.settlement.message_copies import properties_of_copy
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until


def parking_app() -> App:
    app = App(compiled())

    @app.consumer("orders")
    async def place(body: bytes) -> None:
        if body == b"bad":
            raise Park("bad")

    return app


def test_a_missing_wait_queue_holds_its_messages_says_so_and_lets_them_go_once_it_is_there() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            runs: list[bytes] = []

            @app.consumer("orders", prefetch=5)
            async def place(body: bytes) -> None:
                runs.append(body)
                if body == b"bad" and runs.count(b"bad") == 1:
                    raise ValueError("no")

            async with on.running(app):
                channel = await on.client.channel()
                await channel.delete_queue("orders.wait.30s")
                await on.publish("orders", b"bad", message_id="a")
                await until(lambda: on.notes.count("runtime.publish_failed"))
                failed = on.notes.last("runtime.publish_failed")
                assert failed["outcome"] == "returned"
                assert failed["routing_key"] == "orders.wait.30s"
                assert on.places("a") == ["unacked in orders"]
                await on.publish("orders", b"good", message_id="b")
                await until(lambda: runs == [b"bad", b"good"])
                wait = next(one for one in compiled().topology.queues if one.name == "orders.wait.30s")
                await channel.declare_queue(wait.name, arguments=wait.arguments.thaw())
                await until(lambda: runs == [b"bad", b"good", b"bad"])
                await until(lambda: not on.places("a", "b"))
            assert on.decisions() == {"retry": 1, "ack": 2}

    run_scenario(scenario())


def test_a_copy_the_broker_refuses_is_tried_again_and_the_original_kept_until_then() -> None:
    async def scenario() -> None:
        async with stage() as on, on.running(parking_app()):
            on.broker.faults.nack_confirm(nth=2)  # the first is the test's own publish
            await on.publish("orders", b"bad", message_id="a")
            await until(lambda: on.decisions()["park"] == 1)
            assert on.notes.count("runtime.publish_failed") == 1
            # This fault refuses what has arrived all the same: a duplicate, and no loss.
            await until(lambda: on.places("a") == ["ready in orders.parked"] * 2)

    run_scenario(scenario())


def test_a_connection_that_goes_before_the_confirm_leaves_a_duplicate_with_the_same_id_and_no_loss() -> None:
    async def scenario() -> None:
        async with stage() as on, on.running(parking_app()):
            await on.publish("orders", b"good", message_id="a")
            await until(lambda: on.decisions()["ack"] == 1)
            publisher = await on.client.publisher()
            on.broker.faults.close_after("basic.publish", nth=2)
            made = wire.Properties.of(delivery_mode=2, message_id="b")
            await publisher.publish("", "orders", b"bad", made)
            await until(lambda: on.decisions()["park"] == 1)
            await until(lambda: set(on.places("b")) == {"ready in orders.parked"})
            assert on.notes.last("runtime.publish_failed")["outcome"] == "indoubt"
            assert 1 <= len(on.places("b")) <= 2

    run_scenario(scenario())


def test_when_the_app_stops_a_message_whose_copy_can_not_be_made_is_requeued() -> None:
    async def scenario() -> None:
        async with stage() as on:
            async with on.running(parking_app()):
                channel = await on.client.channel()
                await channel.delete_queue("orders.parked")
                await on.publish("orders", b"bad", message_id="a")
                await until(lambda: on.notes.count("runtime.publish_failed"))
            assert on.places("a") == ["ready in orders"]

    run_scenario(scenario())


def test_a_delivery_whose_channel_went_is_handled_again_and_settled_once() -> None:
    runs: list[bool] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            first = asyncio.Event()

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                runs.append(True)
                if len(runs) == 1:
                    await first.wait()

            async with on.running(app):
                await on.publish("orders", b"x", message_id="a")
                await until(lambda: runs)
                await on.broker.restart()
                await until(lambda: len(runs) == 2)
                first.set()
                await until(lambda: not on.places("a"))
            assert on.decisions()["ack"] == 1

    run_scenario(scenario())


def delivery_of(**properties: Any) -> Delivery:
    return Delivery(1, "tag", 1, False, ("", "orders"), wire.Properties.of(**properties).raw, b"body")


def letter_of(delivery: Delivery) -> DeliveredMessage:
    return DeliveredMessage(delivery, compiled().queue("orders"))


def test_a_copy_keeps_everything_but_what_it_can_not_and_says_what_that_was() -> None:
    delivery = delivery_of(
        headers={
            "mine": 1,
            "CC": ["elsewhere"],
            "x-death": [{"count": 1, "queue": "q", "reason": "expired"}],
            headers.NOT_BEFORE: 5,
        },
        content_type="text/plain",
        delivery_mode=1,
        priority=3,
        expiration="5000",
        user_id="guest",
        app_id="shop",
    )
    copy = PublishCopy(
        exchange="",
        routing_key="orders.wait.30s",
        set_headers={"x-retry-count": 1},
        drop_headers=frozenset({"CC", "x-death"}),
        expiration_ms=700,
    )
    made = properties_of_copy(letter_of(delivery), copy, new_id=lambda: "made-up")
    digest = made.headers[headers.DIGEST]
    assert made.present() == {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "expiration": "700",
        "app_id": "shop",
        "headers": {
            "mine": 1,
            "x-retry-count": 1,
            "x-redrive-id": "made-up",
            "x-redrive-digest": digest,
            "x-redrive-stripped": {
                "expiration": "5000",
                "user_id": "guest",
                "delivery_mode": 1,
                "CC": ["elsewhere"],
            },
        },
    }


def test_a_copy_of_a_copy_keeps_its_id_and_what_the_first_one_took_away() -> None:
    told = {"x-redrive-id": "first", "x-redrive-stripped": {"expiration": "1", "user_id": "a"}}
    digest = wire.digest_of(wire.Properties.of(), "orders", message_id="first", body=b"body")
    delivery = delivery_of(headers={**told, "x-redrive-digest": digest}, user_id="b", delivery_mode=2)
    made = properties_of_copy(letter_of(delivery), PublishCopy(exchange="", routing_key="q"), new_id=lambda: "second")
    assert made.headers == {**told, "x-redrive-digest": digest}
    assert made.user_id is None


def test_a_copy_carries_no_header_of_ours_that_belongs_to_another_message() -> None:
    anothers = {
        "x-redrive-id": "first",
        "x-redrive-stripped": {"expiration": "1", "user_id": "a"},
        "x-retry-count": 2,
        "x-redrive-attempts-before": 9,
        "x-redrive-first-seen": 5,
        "x-redriven-id": "letter",
        "x-redrive-digest": "0" * 32,
        "mine": 1,
    }
    delivery = delivery_of(headers=anothers, user_id="b", delivery_mode=2)
    made = properties_of_copy(letter_of(delivery), PublishCopy(exchange="", routing_key="q"), new_id=lambda: "second")
    assert made.headers == {
        "mine": 1,
        "x-redrive-id": "second",
        "x-redrive-stripped": {"user_id": "b"},
        "x-redrive-digest": made.headers["x-redrive-digest"],
    }
    assert made.headers["x-redrive-digest"] != "0" * 32


@pytest.mark.parametrize("name", ["m", None])
def test_a_message_with_an_id_of_its_own_gets_no_other(name: str | None) -> None:
    letter = letter_of(delivery_of(message_id=name))
    made = properties_of_copy(letter, PublishCopy(exchange="", routing_key="q"), new_id=lambda: "x")
    digest = {"x-redrive-digest": made.headers["x-redrive-digest"]}
    assert made.headers == (digest if name else {"x-redrive-id": "x", **digest})
