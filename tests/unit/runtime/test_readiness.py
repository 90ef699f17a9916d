"""Queues that exist, and are not as declared: what is rejected from one without a dead-letter exchange is gone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from redrive import App, run
from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunOptions, InvalidApp, TopologyMissing
from redrive.testing.plugin import ThreadedBroker
from redrive.topology import Compiled
from redrive.wire import Properties
from redrive.wiring import declare_missing, running
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import compiled, until

RELYING = {
    "per-queue": "{type: classic, retry: {shape: per-queue}}",
    "quorum": "{retry: {shape: quorum}}",
    "requeue": "{type: classic, from: {shop: ['#']}, retry: {shape: requeue, park: reject}}",
    "native": "{retry: {shape: native}}",
}


@asynccontextmanager
async def plain_main_queue(plan: Compiled) -> AsyncIterator[tuple[EmbeddedBroker, Client]]:
    """Everything is declared but the dead-letter settings of `orders`: its publisher was there first."""
    async with EmbeddedBroker("4.3", time="manual") as broker, Client(broker.url) as client:
        channel = await client.channel()
        for exchange in plan.topology.exchanges:
            await channel.declare_exchange(exchange.name, exchange.type, durable=True)
        for queue in plan.topology.queues:
            arguments = {"x-queue-type": queue.type}
            if queue.name != "orders":
                arguments |= queue.arguments.thaw()
            await channel.declare_queue(queue.name, durable=True, arguments=arguments)
        for binding in plan.topology.bindings:
            if binding.destination_type == "queue":
                await channel.bind_queue(binding.destination, binding.source, binding.routing_key)
        yield broker, client


@pytest.mark.parametrize("shape", RELYING)
def test_a_queue_that_would_drop_what_is_rejected_is_not_consumed(shape: str) -> None:
    text = f"exchanges: {{shop: topic}}\nqueues: {{orders: {RELYING[shape]}}}"

    async def scenario() -> None:
        plan = compiled(text)
        async with plain_main_queue(plan) as (broker, client):
            app = App(plan)

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                raise ValueError("no")

            publisher = await client.publisher()
            await publisher.publish("", "orders", b"{}", Properties.of(delivery_mode=2, message_id="a"))
            with pytest.raises(
                TopologyMissing, match=r"queue orders with its dead-letter settings \(x-dead-letter-exchange is not set"
            ):
                async with running(app, url=broker.url, options=AppRunOptions(wait_for_topology=False)):
                    pass
            assert [str(place.state) for place in broker.whereabouts("a")] == ["ready"]

    run_scenario(scenario())


def test_settings_that_are_somebodys_own_do_not_hinder() -> None:
    text = "queues: {orders: {type: classic, retry: {shape: per-queue}}}"

    async def scenario() -> None:
        plan = compiled(text)
        async with EmbeddedBroker("4.3", time="manual") as broker, Client(broker.url) as client:
            await declare_missing(plan, lambda _: Client(broker.url))
            channel = await client.channel()
            await channel.delete_queue("orders")
            main = plan.queue("orders").queue
            own = {"x-max-length": 1000, "x-max-priority": 5, **main.arguments.thaw()}
            await channel.declare_queue("orders", durable=True, arguments=own)
            app = App(plan)
            app.consumer("orders")(nothing)
            notes = Notes()
            options = AppRunOptions(wait_for_topology=False, linger_s=0)
            async with running(app, url=broker.url, observer=notes, options=options):
                pass
            assert notes.count("runtime.queue_differs") == 0

    run_scenario(scenario())


async def nothing(_body: bytes) -> None: ...


@pytest.mark.parametrize("declare", [False, True])
def test_where_parking_is_a_publish_it_runs_and_warns(declare: bool) -> None:
    text = "exchanges: {shop: topic}\nqueues: {orders: {type: classic, from: {shop: ['#']}, retry: {shape: requeue}}}"

    async def scenario() -> None:
        plan = compiled(text)
        notes = Notes()
        async with plain_main_queue(plan) as (broker, client):
            app = App(plan)

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                raise ValueError("no")

            publisher = await client.publisher()
            await publisher.publish("", "orders", b"{}", Properties.of(delivery_mode=2, message_id="a"))
            options = AppRunOptions(wait_for_topology=False, linger_s=0)
            async with running(app, url=broker.url, observer=notes, options=options, declare=declare):
                await until(
                    lambda: any(name == "runtime.decided" and told["decision"] == "park" for name, told in notes.heard)
                )
            (warning,) = [told for name, told in notes.heard if name == "runtime.queue_differs"]
            assert warning["queue"] == "orders"
            assert str(warning["difference"]).startswith("x-dead-letter-exchange is not set")
            assert warning["migrate_with"] == (
                "rabbitmqctl set_policy -p / --apply-to queues orders.dead-letters '^orders$'"
                ' \'{"dead-letter-exchange": "shop.dlx", "dead-letter-routing-key": "orders.dlq"}\''
            )
            assert str(warning["look_with"]).startswith("redrive apply ")
            assert [str(place.state) for place in broker.whereabouts("a")] == ["ready"]

    run_scenario(scenario())


@pytest.mark.parametrize("declare", [False, True])
def test_where_parking_is_a_publish_somebodys_own_settings_hinder_neither_way_to_run(declare: bool) -> None:
    """RabbitMQ names the first difference only: here the TTL, and behind it the missing dead-letter exchange."""
    text = "exchanges: {shop: topic}\nqueues: {orders: {from: {shop: ['#']}, retry: {shape: requeue}}}"

    async def scenario() -> None:
        plan = compiled(text)
        async with plain_main_queue(plan) as (broker, client):
            channel = await client.channel()
            await channel.delete_queue("orders")
            await channel.declare_queue("orders", durable=True, arguments={"x-max-length": 1000, "x-max-priority": 3})
            app, notes = App(plan), Notes()
            app.consumer("orders")(nothing)
            options = AppRunOptions(wait_for_topology=False, linger_s=0)
            async with running(app, url=broker.url, observer=notes, options=options, declare=declare):
                pass
            (warning,) = [told for name, told in notes.heard if name == "runtime.queue_differs"]
            assert str(warning["difference"]).startswith("x-dead-letter-exchange is not set")

    run_scenario(scenario())


def not_guaranteed(profile: str, options: str, arguments: dict[str, object]) -> list[str]:
    """What a run of shape quorum warns of, on a queue declared with these arguments beyond the document's."""
    warned: list[str] = []

    async def scenario() -> None:
        plan = compiled(f"queues: {{orders: {{retry: {{shape: quorum{options}}}}}}}")
        literal = compiled("queues: {orders: {retry: {shape: quorum, at_least_once: false, safe_limits: false}}}")
        async with EmbeddedBroker(profile, time="manual") as broker, Client(broker.url) as client:
            channel = await client.channel()
            main = literal.queue("orders").queue.arguments.thaw() | arguments
            await channel.declare_queue("orders", durable=True, arguments=main)
            await declare_missing(literal if not arguments else plan, lambda _: Client(broker.url))
            app, notes = App(plan), Notes()
            app.consumer("orders")(nothing)
            no_wait = AppRunOptions(wait_for_topology=False, linger_s=0)
            async with running(app, url=broker.url, observer=notes, options=no_wait):
                pass
            warned.extend(str(told["reason"]) for name, told in notes.heard if name == "runtime.not_guaranteed")

    run_scenario(scenario())
    return warned


ADDED: dict[str, object] = {
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "x-delivery-limit": 1_000_000,
}
LOSES = "it dead-letters at most once: a message that it passes on while the next queue can't take it is lost"
DROPS = "it has a delivery limit of 20: the broker drops a message whose consumers die with it more often"


@pytest.mark.parametrize("options", ["", ", at_least_once: false, safe_limits: false"])
@pytest.mark.parametrize(
    ("profile", "warned"), [("3.10", LOSES), ("4.0", f"{LOSES}; {DROPS}"), ("4.3", f"{LOSES}; {DROPS}")]
)
def test_a_quorum_queue_as_its_document_has_it_runs_and_what_is_not_guaranteed_is_said(
    profile: str, warned: str, options: str
) -> None:
    """Whether the file says so or not: it is the queue that loses."""
    assert not_guaranteed(profile, options, {}) == [warned]


@pytest.mark.parametrize("profile", ["3.10", "4.3"])
def test_a_quorum_queue_with_what_is_added_to_it_needs_no_warning(profile: str) -> None:
    assert not_guaranteed(profile, "", ADDED) == []


def test_where_stock_quorum_queues_are_refused_the_options_that_take_them_are_named() -> None:
    async def scenario() -> None:
        plan = compiled("queues: {orders: {retry: {shape: quorum}}}")
        literal = compiled("queues: {orders: {retry: {shape: quorum, at_least_once: false, safe_limits: false}}}")
        async with EmbeddedBroker("4.3", time="manual") as broker:
            await declare_missing(literal, lambda _: Client(broker.url))
            with pytest.raises(
                InvalidApp, match=r"say retry: \{at_least_once: false, safe_limits: false\} for queue orders"
            ):
                await declare_missing(plan, lambda _: Client(broker.url))
            await declare_missing(literal, lambda _: Client(broker.url))

    run_scenario(scenario())


def test_a_program_declares_nothing_unasked_and_says_what_is_missing(broker: ThreadedBroker) -> None:
    app = App(compiled("queues: {orders: {retry: [30s]}}"))

    @app.consumer("orders")
    async def handle(_body: bytes) -> None:
        pass

    def started(_: object) -> None:
        raise AssertionError("it runs")

    with pytest.raises(TopologyMissing, match="queue orders"):
        run(app, url=broker.url, options=AppRunOptions(wait_for_topology=False), started=started)
    assert broker.depths() == {}
