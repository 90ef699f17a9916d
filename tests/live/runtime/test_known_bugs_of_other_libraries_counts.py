"""Known bugs of other libraries, continued: attempts miscounted, and crashes between two steps."""

import asyncio
from collections import Counter

import pytest
from rig.brokers import Vhost

from redrive.core import Requeue, Rule
from redrive.runtime import Message
from tests.live.runtime.faults_line import open_line
from tests.live.runtime.faults_shop import NoSuchCustomer, at, open_shop, play, shapes_of
from tests.live.runtime.kills.cells import Cell
from tests.live.runtime.kills.scene import Scene

# 9, 10: counting


@pytest.mark.live
def test_attempts_end_however_a_message_goes_back(vhost: Vhost) -> None:
    """Fault 9, amqp-contract and Rebus: on 4.3 a nack with requeue counts nothing, and a poison message loops hot.

    Ours goes back by a counted copy or, in shape native, by a reject, which every version counts. The literal form
    `requeue: nack`, which nobody gets without asking for it, ends where the broker counts: quorum queues up to 4.0.
    """
    declared = """
exchanges: {shop: topic}
queues:
  classic: {from: {shop: ["classic.#"]}, retry: {shape: requeue}}
  counted: {from: {shop: ["counted.#"]}, type: quorum, retry: {shape: requeue}}
"""
    if vhost.profile == "4.3":
        declared += '  native: {from: {shop: ["native.#"]}, retry: {shape: native, min: 100ms, max: 200ms}}\n'
    else:
        declared += '  literal: {from: {shop: ["literal.#"]}, type: quorum, retry: {shape: requeue, requeue: nack}}\n'

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)
        names = [one.name for one in shop.declared.declared]
        for name in names:
            await shop.publish(name, f"m-{name}", b"fail")
        async with shop.open():
            await shop.until(lambda: len(shop.runs) >= 4 * len(names))
            await asyncio.sleep(0.5)  # a fifth run would be here by now
        assert {name: shop.attempts(f"m-{name}") for name in names} == {name: [1, 2, 3, 4] for name in names}
        parking = {name: shop.declared.queue(name).routes for name in names}
        expected = {one.parking.queue: Counter({f"m-{name}": 1}) for name, one in parking.items() if one is not None}
        assert await shop.census() == expected

    play(scenario)


@pytest.mark.live
def test_a_message_given_back_without_end_is_never_counted_nor_ended_by_the_delivery_limit(vhost: Vhost) -> None:
    """Fault 9, the other side: what must not count does not, although 3.10 and 4.0 count every nack up to a limit."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        left = [45]

        async def not_yet(message: Message) -> None:
            left[0] -= 1
            if left[0]:
                await shop.handle(b"requeue", message)

        shop.acts["not-yet"] = not_yet
        await shop.publish("orders", "order", b"not-yet")
        async with shop.open():
            await shop.until(lambda: shop.handled == ["order"])
        assert set(shop.attempts("order")) == {1}
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
def test_where_deliveries_are_the_attempts_only_failed_runs_count_and_a_rule_may_allow_more_of_them(
    vhost: Vhost,
) -> None:
    """Fault 9 again, for the shapes whose count is the broker's: `native`, and the literal `requeue: nack`."""
    declared = """
exchanges: {shop: topic}
queues:
  literal: {from: {shop: ["literal.#"]}, type: quorum, retry: {shape: requeue, requeue: nack, attempts: 2}}
"""
    if vhost.profile == "4.3":
        declared += (
            '  native: {from: {shop: ["native.#"]}, retry: {shape: native, min: 50ms, max: 100ms, attempts: 2}}\n'
        )
    counting = "native" if vhost.profile == "4.3" else "literal"

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)
        names = [one.name for one in shop.declared.declared]
        left = dict.fromkeys(names, 25)

        async def not_yet(message: Message) -> None:
            left[message.queue] -= 1
            if left[message.queue]:
                await shop.handle(b"requeue", message)

        shop.acts["not-yet"] = not_yet
        for name in names:
            await shop.publish(name, f"back-{name}", b"not-yet")
        await shop.publish(counting, "ruled", b"fail")
        routes = shop.declared.queue(counting).routes
        assert routes is not None
        async with shop.open(shop.app(rules=[Rule(NoSuchCustomer, "retry", attempts_max=4)])):
            await shop.until(lambda: len(shop.handled) == len(names) and len(shop.attempts("ruled")) >= 4)
            await shop.wait_counts({routes.parking.queue: 1})
        assert {name: set(shop.attempts(f"back-{name}")) for name in names} == {name: {1} for name in names}
        assert shop.attempts("ruled") == [1, 2, 3, 4]
        (parked,) = await shop.take(routes.parking.queue)
        assert parked.properties.message_id == "ruled"
        assert parked.properties.headers["x-redrive-reason"] == "attempts"
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
@pytest.mark.parametrize("count", [1, 25])
def test_a_publishers_own_delivery_count_never_becomes_the_attempts(vhost: Vhost, count: int) -> None:
    """Fault 9 once more: 4.3 counts no nack, and leaves the number that a message brought on what was given back."""
    declared = """
exchanges: {shop: topic}
queues:
  literal: {from: {shop: ["literal.#"]}, type: quorum, retry: {shape: requeue, requeue: nack, attempts: 2}}
"""
    if vhost.profile == "4.3":
        declared += (
            '  native: {from: {shop: ["native.#"]}, retry: {shape: native, min: 50ms, max: 100ms, attempts: 2}}\n'
        )
    forged = {"x-delivery-count": count, "x-acquired-count": count}

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)
        names = [one.name for one in shop.declared.declared]
        left = dict.fromkeys(names, 4)

        async def not_yet(message: Message) -> None:
            left[message.queue] -= 1
            if left[message.queue]:
                raise Requeue(0)

        shop.acts["not-yet"] = not_yet
        for name in names:
            await shop.publish(name, f"back-{name}", b"not-yet", headers=forged)
            await shop.publish(name, f"bad-{name}", b"fail", headers=forged)
        retry_routes = {name: shop.declared.queue(name).routes for name in names}
        parkings = {one.parking.queue: name for name, one in retry_routes.items() if one is not None}
        async with shop.open():
            await shop.until(lambda: len(shop.handled) == len(names))
            await shop.wait_counts(dict.fromkeys(parkings, 1))
        for parking, name in parkings.items():
            assert shop.attempts(f"back-{name}") == [1, 1, 1, 1]
            assert shop.attempts(f"bad-{name}") == [1, 2]
            (parked,) = await shop.take(parking)
            assert parked.properties.message_id == f"bad-{name}"
            assert parked.properties.headers["x-redrive-reason"] == "attempts"
            assert parked.properties.headers["x-final-retry-count"] == 1
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
def test_three_consumers_run_a_message_exactly_as_often_as_one(vhost: Vhost) -> None:
    """Fault 10, NServiceBus on classic queues and Rebus: each process counts for itself, so attempts multiply."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, shapes_of(vhost))
        names = [one.name for one in shop.declared.declared]
        messages = [(name, f"{name}-{number}") for name in names for number in range(6)]
        for name in names:
            await shop.publish_all(name, {f"{name}-{number}": "fail" for number in range(6)})
        app = shop.app(prefetch=1)
        async with shop.open(app), shop.open(app), shop.open(app):
            await shop.until(lambda: len(shop.runs) >= 3 * len(messages))
            await asyncio.sleep(0.5)  # a fourth run would be here by now
        assert Counter(shop.runs) == {(name, one, attempt): 1 for name, one in messages for attempt in (1, 2, 3)}
        parked: Counter[str] = sum((await shop.census()).values(), Counter())
        assert parked == Counter(one for _, one in messages)

    play(scenario)


# 11, 17: between two steps


@pytest.mark.live
def test_parking_is_confirmed_before_the_ack(vhost: Vhost) -> None:
    """Fault 11, Kicks: parks unconfirmed, then acks. Here the confirm never comes, and the original is not acked."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        await shop.publish("orders", "order", b"park")
        async with open_line(vhost.amqp_url) as line:
            mute = at("before publish", line.mute)
            async with shop.open(publishing=line.url, checkpoint=mute, grace_s=0.3):
                await shop.wait_counts({"orders.parked": 1})
                await asyncio.sleep(0.3)
                assert shop.journal.count("runtime.decided") == 0
                line.cut()
        # The copy is with the broker and nobody was told: a duplicate with one id, and no loss.
        await shop.wait_counts({"orders": 1, "orders.parked": 1})
        assert await shop.census() == {"orders": Counter(order=1), "orders.parked": Counter(order=1)}

    play(scenario)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
@pytest.mark.parametrize(
    ("flow", "place"),
    [
        ("park", "before publish"),
        ("park", "published, before confirm"),
        ("park", "after confirm, before ack"),
        ("park, waiting", "published, before confirm"),
        ("retry", "after ack written"),
    ],
)
def test_a_process_killed_while_it_parks_or_in_the_middle_of_a_delay_loses_nothing(
    vhost: Vhost, flow: str, place: str
) -> None:
    """Fault 11, Kicks and Wolverine: confirms are off, and a scheduled retry is a timer in a process that can die.

    The last of these dies when its retry is under way and nothing but the broker knows of it.
    """
    cell = Cell(shape="ladder", flow=flow, place=place)

    async def scenario() -> None:
        account = await Scene(vhost.amqp_url).play(cell, "orders")
        assert account.problems() == []
        if place in ("published, before confirm", "after confirm, before ack"):
            assert account.parked == ["target", "target"]  # the documented window: two copies with one id

    play(scenario)


@pytest.mark.live
def test_a_reconnect_between_confirm_and_ack_makes_a_duplicate_and_never_a_loss(vhost: Vhost) -> None:
    """Fault 17: the copy is confirmed, the line goes before the ack, so the original is delivered again."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url)
        await shop.publish("orders", "order", b"fail ok")
        async with open_line(vhost.amqp_url) as line:

            def cut() -> None:
                line.cut()
                line.mend()

            cut_once = at("after confirm, before ack", cut)
            async with shop.open(consuming=line.url, checkpoint=cut_once):
                await shop.until(lambda: len(shop.handled) == 2)
                await asyncio.sleep(0.5)  # a third would be here by now
        assert sorted(shop.attempts("order")) == [1, 1, 2, 2]
        assert shop.handled == ["order", "order"]  # one id: whoever must not act twice can tell
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
def test_more_attempts_than_the_delivery_limit_are_all_run(vhost: Vhost) -> None:
    """Fault 17: a quorum queue's limit of 20 deliveries must not end a policy of 25 runs, in whatever shape.

    4.3 carries its delivery count through dead-lettering.
    """
    declared = """
exchanges: {shop: topic, tiers: topic}
queues:
  ladder: {from: {shop: ["ladder.#"]}, retry: {shape: ladder, delays: [20ms], attempts: 25}}
  quorum: {from: {shop: ["quorum.#"]}, retry: {shape: quorum, delays: [20ms], attempts: 25}}
  requeue: {from: {shop: ["requeue.#"]}, type: quorum, retry: {shape: requeue, attempts: 25}}
"""
    if vhost.profile == "4.3":
        declared += "  native: {retry: {shape: native, min: 10ms, max: 20ms, attempts: 25}}\n"

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)
        names = [one.name for one in shop.declared.declared]
        for name in names:
            await shop.publish(name, f"m-{name}", b" ".join([b"fail"] * 24 + [b"ok"]))
        async with shop.open():
            await shop.until(lambda: len(shop.handled) == len(names))
        for name in names:
            assert shop.attempts(f"m-{name}") == list(range(1, 26))
        assert await shop.census() == {}

    play(scenario)
