"""Known bugs of other libraries, each shown to be absent here; this file: that no copy is lost. The whole list:

 1 Dramatiq: a retry whose publish fails is acked all the same     10 NServiceBus, Rebus: attempts counted per process
 2 Dramatiq: dead letters without their error, that expire         11 Kicks, Wolverine: unconfirmed, or only in memory
 3 taskiq: a message whose attempts are spent is just acked        12 EasyNetQ: binary bodies are bent into UTF-8
 4 Celery, NServiceBus: one queue gone blocks everybody's delays   13 Spring's recipe: giving up acks and forgets
 5 Celery, NServiceBus: `bar` gets what `foo.bar` delayed          14 taskiq: thirty minutes block thirty seconds
 6 Celery: a republished x-death makes the broker drop it          15 RawRabbit: siblings run again
 7 Rascal: what is acked lands in the dead letters                 16 aiormq: returns are matched by message id
 8 Rascal: a copy to a vanished queue is confirmed and lost        17 timeouts, delivery limits, reconnects
 9 amqp-contract, Rebus: on 4.3 a nack never counts

4, 5, 6, 14 and 15 are in the file with `_delays` after its name, 9, 10, 11 and 17 in that with `_counts`; long delays
in virtual time are in the unit tests' file of the same name.
"""

import asyncio
from collections import Counter

import pytest
from rig.brokers import Vhost

from redrive.client import Client, Confirmed, Returned
from redrive.core import Rule
from redrive.runtime import App, Message
from redrive.wire import Properties
from tests.live.runtime.faults_line import open_line
from tests.live.runtime.faults_shop import Harmless, at, open_shop, play, shapes_of

# 1: the broker breaks between the failure and the retry's publish


@pytest.mark.live
def test_a_retry_that_cannot_be_published_is_not_acked_and_its_message_is_back_in_its_queue(vhost: Vhost) -> None:
    """Fault 1, Dramatiq: the publish of a retry fails, the error is swallowed, the message acked and lost."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        await shop.publish("orders", "order", b"fail ok")
        async with open_line(vhost.amqp_url) as line:
            cut = at("before publish", line.cut)
            async with shop.open(publishing=line.url, checkpoint=cut, grace_s=0.3):
                await shop.until(lambda: shop.journal.count("client.connect_failed"))
                assert await shop.counts() == {}  # in hand, and in no other queue
            await shop.wait_counts({"orders": 1})
        async with shop.open():
            await shop.until(lambda: shop.handled)
        assert shop.attempts("order") == [1, 1, 2]  # the first run again: its failure was never told to anyone
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_retry_is_published_again_until_it_is_confirmed_and_runs_once(vhost: Vhost) -> None:
    """Fault 1 again, with a line that is mended while the consumer holds the message."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        await shop.publish("orders", "order", b"fail ok")
        async with (
            open_line(vhost.amqp_url) as line,
            shop.open(publishing=line.url, checkpoint=at("before publish", line.cut)),
        ):
            await shop.until(lambda: shop.journal.count("client.connect_failed") >= 2)
            line.mend()
            await shop.until(lambda: shop.handled)
        assert shop.attempts("order") == [1, 2]
        assert await shop.census() == {}

    play(scenario)


# 2, 3, 13: the end of a message


@pytest.mark.live
def test_a_message_whose_attempts_are_spent_is_parked_with_its_last_error_in_every_shape(vhost: Vhost) -> None:
    """Faults 2 and 3, Dramatiq and taskiq: the error is missing, or the whole message is."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, shapes_of(vhost))
        names = [one.name for one in shop.declared.declared]
        for name in names:
            await shop.publish(name, f"m-{name}", b"fail")
        async with shop.open():
            await shop.until(lambda: shop.journal.count("runtime.decided") == 3 * len(names))
        for name in names:
            routes = shop.declared.queue(name).routes
            assert routes is not None
            assert shop.attempts(f"m-{name}") == [1, 2, 3]
            (parked,) = await shop.take(routes.parking.queue)
            headers = parked.properties.headers
            assert (parked.properties.message_id, parked.body) == (f"m-{name}", b"fail")
            assert headers["x-final-error"] == f"NoSuchCustomer: run 3 of m-{name}"
            assert headers["x-redrive-reason"] == "attempts"
            assert headers["x-retry-count"] == headers["x-final-retry-count"] == 2
            assert headers["x-original-queue"] == name
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
def test_no_parking_queue_expires_overflows_or_forgets(vhost: Vhost) -> None:
    """Fault 2, Dramatiq: its dead queue is emptied after seven days. As the broker itself describes ours."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, shapes_of(vhost))
        for one in shop.declared.retry_routes:
            told = await asyncio.to_thread(vhost.management.get, "queues", vhost.name, one.parking.queue)
            assert (told["durable"], told["auto_delete"]) == (True, False)
            forgets = {"x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-overflow"}
            assert forgets.isdisjoint(told["arguments"]), told["arguments"]
            assert (told.get("policy"), told.get("operator_policy")) in ((None, None), ("", ""))

    play(scenario)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_giving_up_always_leaves_a_parked_copy_that_says_why(vhost: Vhost) -> None:
    """Fault 13, Spring's documented recipe: giving up acks the message, and it is gone."""

    class Refused(Exception):
        status_code = 404

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        app = App(shop.declared)

        @app.consumer("orders", park_on=[KeyError])
        async def handle(order: dict[str, str], message: Message) -> None:
            match order["does"]:
                case "refuse":
                    raise Refused("no such order")
                case "break":
                    raise KeyError("customer")
                case "fail":
                    raise ValueError("every time")

        for name in ("refuse", "break", "fail", "well"):
            await shop.publish("orders", name, b'{"does": "%s"}' % name.encode())
        await shop.publish("orders", "nonsense", b"{not JSON")
        async with shop.open(app):
            await shop.until(
                lambda: Counter(one["decision"] for one in shop.journal.of("runtime.decided"))["park"] == 4
            )
        parked = {one.properties.message_id: one.properties.headers for one in await shop.take("orders.parked")}
        assert {name: headers["x-redrive-reason"] for name, headers in parked.items()} == {
            "refuse": "status",
            "break": "permanent",
            "fail": "attempts",
            "nonsense": "undecodable",
        }
        assert all(headers["x-final-error"] for headers in parked.values())
        assert await shop.census() == {}

    play(scenario)


# 7: where a message went


@pytest.mark.live
def test_an_acked_message_is_nowhere_and_a_parked_one_is_parked_and_nowhere_else(vhost: Vhost) -> None:
    """Fault 7, Rascal: its recovery `ack` nacks, so what was to be dropped lands in the dead letters."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, shapes_of(vhost))
        names = [one.name for one in shop.declared.declared]
        for name in names:
            for fate in ("ok", "harmless", "park"):
                await shop.publish(name, f"{fate}-{name}", fate.encode())
        async with shop.open(shop.app(rules=[Rule(Harmless, "ack")])):
            await shop.until(lambda: shop.journal.count("runtime.decided") == 3 * len(names))
        parking = {name: shop.declared.queue(name).routes for name in names}
        expected = {one.parking.queue: Counter({f"park-{name}": 1}) for name, one in parking.items() if one is not None}
        assert await shop.census() == expected
        assert len(shop.runs) == 3 * len(names)

    play(scenario)


# 8, 16: what the broker returns


@pytest.mark.live
def test_a_copy_to_a_vanished_queue_is_returned_and_its_message_kept_until_the_queue_is_back(vhost: Vhost) -> None:
    """Fault 8, Rascal: never mandatory, so a copy to a queue that is gone is confirmed, its message acked and lost."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        async with shop.open():
            await shop.delete("orders.wait.100ms", "orders.parked")
            await shop.publish("orders", "retried", b"fail ok")
            await shop.publish("orders", "parked", b"park")
            failed = shop.journal
            await shop.until(lambda: failed.count("runtime.publish_failed") >= 4)
            assert {one["outcome"] for one in failed.of("runtime.publish_failed")} == {"returned"}
            assert await shop.counts() == {}
            assert shop.handled == []
        # The app ends meanwhile: both are back where they came from, no copy anywhere.
        await shop.wait_counts({"orders": 2})
        await shop.declare()
        async with shop.open():
            await shop.until(lambda: shop.handled == ["retried"] and len(shop.attempts("parked")) == 2)
        assert await shop.census() == {"orders.parked": Counter({"parked": 1})}

    play(scenario)


@pytest.mark.live
def test_of_two_messages_alike_in_flight_the_one_without_a_queue_is_the_one_that_is_kept(vhost: Vhost) -> None:
    """Fault 16, aio-pika and aiormq: returns are matched by message id, so the wrong one of two copies is acked."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        both = asyncio.Barrier(2)
        turns = iter(("fail", "park"))

        async def together(message: Message) -> None:
            if message.attempt == 1:
                fate = next(turns)
                await both.wait()
                await shop.handle(fate.encode(), message)

        shop.acts["twin"] = together
        async with shop.open():
            await shop.delete("orders.parked")
            for _ in range(2):
                await shop.publish("orders", "twin", b"twin")
            await shop.until(lambda: shop.handled == ["twin"] and shop.journal.count("runtime.publish_failed"))
            await shop.declare()
            await shop.until(lambda: shop.journal.count("runtime.decided") == 3)
        assert {one["routing_key"] for one in shop.journal.of("runtime.publish_failed")} == {"orders.parked"}
        assert await shop.census() == {"orders.parked": Counter({"twin": 1})}

    play(scenario)


@pytest.mark.live
def test_returns_are_matched_by_their_order_on_the_channel(vhost: Vhost) -> None:
    """Fault 16, below the runtime: the same message to a queue and to nowhere, all in flight at once."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        same = Properties.of(delivery_mode=2, message_id="twin")
        keys = ["orders" if (number * 7) % 3 else "nowhere" for number in range(60)]
        async with Client(shop.url) as client:
            publisher = await client.publisher()
            outcomes = await asyncio.gather(*(publisher.publish("", key, b"twin", same) for key in keys))
        assert [type(outcome) for outcome in outcomes] == [Confirmed if key == "orders" else Returned for key in keys]
        assert await shop.census() == {"orders": Counter({"twin": keys.count("orders")})}

    play(scenario)


# 12: any bytes


@pytest.mark.live
def test_any_body_and_any_error_go_through_retry_and_parking_byte_for_byte(vhost: Vhost) -> None:
    """Fault 12, EasyNetQ: a binary body becomes a UTF-8 string on its way to the error queue."""
    bodies = {
        "latin": b"caf\xe9 \xff\xfe\x00\x80",
        "empty": b"",
        "large": bytes(range(256)) * 4096,
        "largest": b"\xf0\x28\x8c\x28" * 4_000_000,
    }

    def deep(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        raise ValueError("\udcff\x00 not a word of it fits " + "x" * 200_000)

    def deeper(levels: int) -> None:
        deep(levels)

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        app = App(shop.declared)

        @app.consumer("orders", prefetch=1)
        async def handle(body: bytes, message: Message) -> None:
            assert body == bodies[str(message.id)]
            shop.runs.append((message.queue, str(message.id), message.attempt))
            deep(100)  # two hundred frames

        for name, body in bodies.items():
            await shop.publish("orders", name, body, headers={"binary": b"\xff\x00", "text": "caf\u00e9"})
        async with shop.open(app):
            await shop.until(lambda: shop.journal.count("runtime.decided") == 3 * len(bodies))
        assert Counter(shop.runs) == {("orders", name, attempt): 1 for name in bodies for attempt in (1, 2, 3)}
        parked = {one.properties.message_id: one for one in await shop.take("orders.parked")}
        assert {name: one.body for name, one in parked.items()} == bodies
        for one in parked.values():
            headers = one.properties.headers
            assert (headers["binary"], headers["text"]) == (b"\xff\x00", "caf\u00e9")
            assert headers["x-final-error"].startswith("ValueError: ")
            assert len(headers["x-final-error"]) < 10_000
            assert "deeper" in headers["x-redrive-stack"]
        assert await shop.census() == {}

    play(scenario)
